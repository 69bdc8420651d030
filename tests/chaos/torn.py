"""What an unclean end leaves in a broker's log: bytes that are no whole batch, and no word of what was synced.

Only what was never acknowledged may be damaged where every promise shall hold: with one replica, what was acknowledged
and is then lost is lost for everybody, whoever reads it. So a tail is torn (`tear`): garbage behind the last batch, as
a write that was under way leaves it. `cut` takes acknowledged records; what is right then is another question, that of
`test_torn.py`: a committed offset beyond the end of its partition is refused.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

CHECKPOINT = "recovery-point-offset-checkpoint"
METADATA = "__cluster_metadata"
_HEAD = struct.Struct(">qi")
"""First offset of a batch, and how many bytes follow (Kafka's record batch, magic 2)."""
MAX_GARBAGE_BYTES = 2_000


def last_segment(data: Path, topic: str, partition: int) -> Path:
    """Return the segment of a partition that is written to."""
    return max((data / f"{topic}-{partition}").glob("*.log"))


def tear(data: Path, chance: random.Random, share: float = 0.5) -> list[str]:
    """Tear the tails of partitions of a broker that was killed; returns their names.

    The recovery checkpoint goes, too, so that the broker looks at every segment.

    Args:
        data: the broker's log directory.
        chance: draws what is torn, and how.
        share: of all partitions, those of offsets and transactions included.
    """
    (data / CHECKPOINT).unlink(missing_ok=True)
    torn = []
    for folder in sorted(path for path in data.iterdir() if path.is_dir() and list(path.glob("*.log"))):
        if folder.name.startswith(METADATA) or chance.random() >= share:
            continue
        segment = max(folder.glob("*.log"))
        with segment.open("r+b") as file:
            written = file.read()
            file.write(_garbage(written, chance))
        torn.append(folder.name)
    return torn


def _garbage(written: bytes, chance: random.Random) -> bytes:
    """Half a batch, zeros as of a file that was made longer and not written, or noise."""
    if written and chance.random() < 1 / 3:
        _, length = _HEAD.unpack_from(written)
        return written[: chance.randrange(1, _HEAD.size + length)]
    size = chance.randrange(1, MAX_GARBAGE_BYTES)
    return bytes(size) if chance.random() < 1 / 2 else chance.randbytes(size)


def cut(segment: Path, batches: int) -> int:
    """Take the last batches of a segment away, acknowledged as they are; returns the offset that is now its end."""
    written = segment.read_bytes()
    starts, position = [], 0
    while position < len(written):
        offset, length = _HEAD.unpack_from(written, position)
        starts.append((position, offset))
        position += _HEAD.size + length
    position, offset = starts[-batches]
    with segment.open("r+b") as file:
        file.truncate(position)
    return offset

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.chaos.checker import wrong_ordered
from tests.chaos.ledger import produce
from tests.chaos.points import POINTS, Action, Armed, Points, arm, disarm, fired, is_armed
from tests.chaos.process import until

LIMIT_S = 10.0
ROOT = Path(__file__).parents[2]


def shown(directory):
    """What has happened, without identifiers."""
    return [(firing.worker, firing.point, firing.action) for firing in fired(directory)]


def test_a_point_fires_once_at_its_pass_and_says_so(tmp_path):
    """A run counts what has happened, and a worker that starts again must not meet the same fault for ever."""
    arm(tmp_path, "a", Armed("before_commit", Action.EXPLODE, passes=3))
    points = Points(tmp_path, "a")
    for _ in range(2):
        points.pass_by("before_commit")
    assert [] == fired(tmp_path)
    with pytest.raises(ZeroDivisionError):
        points.pass_by("before_commit")
    assert [("a", "before_commit", Action.EXPLODE)] == shown(tmp_path)
    assert not is_armed(tmp_path, "a", "before_commit")
    points.pass_by("before_commit")
    Points(tmp_path, "b").pass_by("before_commit")  # somebody else's


def test_a_fault_without_a_file_happens_so_often(tmp_path):
    """Aborts in a row are a case of their own: the fifth ends the worker."""
    points = Points(tmp_path, "a", [Armed("before_commit", Action.FAIL, times=2)])
    flushed = []
    for _ in range(2):
        with pytest.raises(KafkaException, match="asked for"):
            points.pass_by("before_commit", lambda: flushed.append(1))
    points.pass_by("before_commit")
    assert [1, 1] == flushed


def test_a_worker_is_held_until_it_is_disarmed(tmp_path):
    """What a test does while a worker stands between two calls needs no race."""
    arm(tmp_path, "a", Armed("after_offsets", Action.HOLD))
    standing = threading.Thread(target=Points(tmp_path, "a").pass_by, args=("after_offsets",))
    standing.start()
    until(lambda: shown(tmp_path), "the point reached", LIMIT_S)
    assert standing.is_alive()
    disarm(tmp_path, "a", "after_offsets")
    standing.join(LIMIT_S)
    assert not standing.is_alive()


async def test_in_the_loop_a_stall_and_a_hold_are_awaited(tmp_path):
    """Heartbeats and watchdogs must not be held up by what delays a drain."""
    points = Points(tmp_path, "a", [Armed("drained", Action.STALL, seconds=0.0)])
    await points.pass_by_in_loop("drained")
    assert [("a", "drained", Action.STALL)] == shown(tmp_path)


@pytest.mark.parametrize("action", [Action.KILL, Action.STOP])
def test_a_process_kills_or_stops_itself_exactly_there(tmp_path, action):
    """Not one instruction later: what would be written next is what the fault is about."""
    arm(tmp_path, "a", Armed("before_apply", action))
    code = """
        import sys
        from pathlib import Path
        from tests.chaos.points import Points
        Points(Path(sys.argv[1]), "a").pass_by("before_apply")
        Path(sys.argv[1], "beyond").touch()
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], cwd=ROOT)
    until(lambda: shown(tmp_path), "the point reached", LIMIT_S)
    if action is Action.STOP:
        stat = Path(f"/proc/{process.pid}/stat")
        until(
            lambda: stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T", "a process that is stopped"
        )
        assert not (tmp_path / "beyond").exists()
        process.send_signal(signal.SIGCONT)
        assert 0 == process.wait(LIMIT_S)
        assert (tmp_path / "beyond").exists()
    else:
        assert -signal.SIGKILL == process.wait(LIMIT_S)
        assert not (tmp_path / "beyond").exists()


def test_a_point_that_does_not_exist_cannot_be_armed():
    """A fault that never happens would be a promise never tested."""
    with pytest.raises(ValueError, match="before_comit"):
        Armed("before_comit", Action.KILL)


def test_a_worker_passes_every_point(stage_factory, reader, broker):
    """The points are names of the product's own steps: one that is renamed there must not fall silent here."""
    stage = stage_factory("ordered", partitions=1)
    expected = {point for point, actions in POINTS.items() if actions}
    for point in expected:
        stage.arm("a", Armed(point, Action.STALL))
    topic = stage.toy.inputs[0]
    sent = [(b"k%d" % number, b"v:%d" % number) for number in range(20)]
    produce(broker.bootstrap, topic, sent)
    worker = stage.worker().start()
    out = reader(stage.toy.out)
    out.until_count(2 * len(sent))
    worker.send(signal.SIGTERM)
    worker.exit_status()
    worker.lose_disk()
    worker.start()
    until(lambda: {firing.point for firing in stage.fired()} >= expected, "all points passed")
    assert [] == wrong_ordered(reader(topic).read_to_end(), out.read_to_end(), [])

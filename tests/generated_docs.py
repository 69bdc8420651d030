"""Tables of the documentation that are made from the code.

`python -m tests.generated_docs` writes them anew; `test_docs.py` holds the pages against them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from pydantic_core import PydanticUndefined

from pipeline.config import Section, Settings
from pipeline.ops.findings import KINDS
from pipeline.tasks.model import WrittenTask
from pipeline.topics import DAY_MS, MIB, TABLE, Topic
from pipeline.web.tracking import TRACKING_PARAMETERS, TRACKING_PREFIX
from tests import safeguards

DOCS = Path(__file__).parents[1] / "docs"


def configuration() -> str:
    """Return a heading and a table for each section of the configuration."""
    parts = []
    for name, info in Settings.model_fields.items():
        section = info.annotation
        assert isinstance(section, type)
        assert issubclass(section, Section)
        rows = [
            f"| `{name}.{key}` | {_default(field)} | {field.description or _choices(field.annotation)} |"
            for key, field in section.model_fields.items()
        ]
        text = (section.__doc__ or "").strip()
        parts.append("\n".join([f"### {name}", "", text, "", "| key | default | what it is |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _default(field: Any) -> str:
    value = field.default_factory() if field.default is PydanticUndefined else field.default
    if value is None:
        return "none"
    plain = str(value) if isinstance(value, Path) else value
    return f"`{json.dumps(plain, default=Section.model_dump)}`"


def _choices(annotation: Any) -> str:
    return "one of " + ", ".join(map(str, get_args(annotation)))


def topics() -> str:
    """Return the table of topics."""
    rows = [
        f"| `{topic.name}` | {topic.key} | {topic.owner or '-'} | {_kept(topic)} "
        f"| {topic.max_message_bytes // MIB} MiB | {'yes' if topic.dead_letters else '-'} "
        f"| `{topic.subject.removesuffix('-value')}` |"
        for topic in TABLE
    ]
    head = "| topic | key | read by | kept | largest | `-dlq` | contract |"
    return "\n".join([head, "|---|---|---|---|---:|---|---|", *rows])


def _kept(topic: Topic) -> str:
    if topic.cleanup == "compact":
        return "newest of each key"
    days = topic.retention_ms // DAY_MS
    return f"{days} day{'s' * (days > 1)}"


def findings() -> str:
    """Return the table of what `headrace doctor` finds."""
    rows = [f"| `{kind}` | {text} |" for kind, text in KINDS.items()]
    return "\n".join(["| kind | what it is |", "|---|---|", *rows])


def tracking() -> str:
    """Return the table of tracking parameters."""
    rows = [f"| `{name}` | {added_by} |" for name, added_by in TRACKING_PARAMETERS.items()]
    head = ["| parameter | who adds it |", "|---|---|", f"| `{TRACKING_PREFIX}…` | Google Analytics, campaigns |"]
    return "\n".join([*head, *rows])


def task_fields() -> str:
    """Return the table of the fields of a task."""
    rows = [f"| `{name}` | {field.description} |" for name, field in WrittenTask.model_fields.items()]
    return "\n".join(["| field | what it is |", "|---|---|", *rows])


GENERATED: dict[tuple[str, str], Callable[[], str]] = {
    ("configuration.md", "configuration"): configuration,
    ("submitting.md", "fields"): task_fields,
    ("topics.md", "topics"): topics,
    ("architecture/delivery.md", "safeguards"): safeguards.table,
    ("architecture/urls.md", "tracking"): tracking,
    ("operations/monitoring.md", "findings"): findings,
}
"""Page and name of each part -> what makes it. The part stands between `<!-- made: NAME -->` and `<!-- end -->`."""


def with_part(page: str, name: str, made: str) -> str:
    """Return a page with a part made anew; the page must have its marks."""
    before, after = f"<!-- made: {name} -->\n", "<!-- end -->"
    pattern = re.compile(re.escape(before) + ".*?" + re.escape(after), re.DOTALL)
    assert pattern.search(page), f"no marks of {name}"
    return pattern.sub(lambda _: f"{before}{made}\n{after}", page, count=1)


def main() -> None:
    """Write all parts anew."""
    for (page, name), make in GENERATED.items():
        path = DOCS / page
        path.write_text(with_part(path.read_text(encoding="utf-8"), name, make()), encoding="utf-8")


if __name__ == "__main__":
    main()

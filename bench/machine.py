"""What a figure must be told with: the machine and the versions it was measured on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from pipeline.local import archives

CLIENT_PACKAGES = ("faust-streaming", "aiokafka", "confluent-kafka")
"""What stands between a stage and the broker."""


def machine(packages: Iterable[str] = CLIENT_PACKAGES) -> dict[str, str]:
    """Describe this machine.

    Args:
        packages: Python packages whose versions matter.

    Returns:
        Processor, cores, Python, Kafka and the packages, by name.
    """
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "kafka": archives.listed("kafka")[0].coordinate.rpartition(":")[2],
        **{package: version(package) for package in packages},
    }


def sentence(described: dict[str, str]) -> str:
    """Return the same for people, in one line."""
    return ", ".join(f"{name} {value}" for name, value in described.items())

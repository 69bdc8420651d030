from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.delivery.exits import ExitCode

FULL = Path("/dev/full")
ENDS = """
from pipeline.cli.service import service
from pipeline.errors import BrokerError, ConfigurationError
with service():
    raise {error}("alas")
"""


@pytest.mark.skipif(not FULL.exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize(
    ("error", "status"), [("ConfigurationError", ExitCode.CONFIGURATION), ("BrokerError", ExitCode.BROKER)]
)
def test_the_status_is_right_though_the_message_cannot_be_written(error, status):
    """A full disk is often the log's, too: what starts the worker again goes by the status."""
    with FULL.open("wb") as full:
        ended = subprocess.run([sys.executable, "-c", ENDS.format(error=error)], stderr=full, check=False)
    assert status == ended.returncode

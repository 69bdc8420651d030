"""The lock on a worker's data directory."""

from __future__ import annotations

import re

import pytest

from pipeline.config import Broker, Settings, Worker
from pipeline.delivery import worker as delivery
from pipeline.errors import ConfigurationError


def test_a_disk_that_refuses_the_owners_number_is_named(tmp_path):
    """A full disk still opens and locks a file: the first write is what fails, and must not be a traceback."""
    settings = Settings(broker=Broker(bootstrap="127.0.0.1:1"), worker=Worker(data_dir=tmp_path))
    owner = tmp_path / "state" / "store-0" / "owner"
    owner.parent.mkdir(parents=True)
    owner.symlink_to("/dev/full")
    worker = delivery.Worker("store", settings)
    with pytest.raises(ConfigurationError, match=rf"{re.escape(str(owner.parent))}: .*worker\.data_dir"):
        worker._take_directory()
    worker._lock.close()  # a worker holds it to its end

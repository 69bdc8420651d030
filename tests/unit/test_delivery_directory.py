"""The lock on a worker's data directory, and the restore into it."""

from __future__ import annotations

import re

import pytest

from pipeline.config import Broker, Delivery, Settings, Worker
from pipeline.delivery import worker as delivery
from pipeline.errors import ConfigurationError
from pipeline.state.changelog import PlainRows


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


def test_a_predecessor_that_is_still_draining_is_waited_for(tmp_path, monkeypatch):
    """A command that was killed leaves its workers a shutdown long: started again at once, it must not give up."""
    settings = Settings(broker=Broker(bootstrap="127.0.0.1:1"), worker=Worker(data_dir=tmp_path))
    predecessor, successor = delivery.Worker("store", settings), delivery.Worker("store", settings)
    predecessor._take_directory()
    pauses = []

    def sleep(pause_s):
        pauses.append(pause_s)
        predecessor._lock.close()

    monkeypatch.setattr(delivery.time, "sleep", sleep)
    successor._take_directory()
    assert 1 == len(pauses)
    successor._lock.close()


def test_a_directory_that_stays_in_use_is_refused(tmp_path, monkeypatch):
    """Two workers on one state would spoil it; the message names the way out."""
    settings = Settings(broker=Broker(bootstrap="127.0.0.1:1"), worker=Worker(data_dir=tmp_path))
    owner, other = delivery.Worker("store", settings), delivery.Worker("store", settings)
    owner._take_directory()
    moments = iter(range(0, 1_000, 5))
    monkeypatch.setattr(delivery.time, "monotonic", lambda: next(moments))
    monkeypatch.setattr(delivery.time, "sleep", lambda pause_s: None)
    with pytest.raises(ConfigurationError, match="in use by another worker named store-0"):
        other._take_directory()
    owner._lock.close()
    other._lock.close()


def test_a_restore_may_stand_still_as_long_as_offsets_may(tmp_path):
    """Both wait for the same transactions, and one key is their limit."""
    settings = Settings(
        broker=Broker(bootstrap="127.0.0.1:1"),
        worker=Worker(data_dir=tmp_path),
        delivery=Delivery(stable_offsets_s=7.0),
    )
    assert 7.0 == delivery.Worker("frontier", settings)._changelog(PlainRows())._standstill_s

from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.delivery.api import OrderedPartition, OrderedStage
from pipeline.errors import InputError
from pipeline.frontier import partition as partition_module
from pipeline.frontier.records import TABLES
from pipeline.state.store import PartitionStore
from pipeline.state.view import StagedView
from pipeline.web.partition import partition_for
from tests.frontier_world import START, Bench, decode, make_crawl, make_parsed, make_stage

A = "http://a.test/"


def reports(outputs):
    """The progress records among outputs, with what they say."""
    return [(output, decode(output)) for output in outputs if output.topic == topics.PROGRESS.name]


def test_the_stage_fulfils_the_protocol():
    """The runner knows these methods and nothing else; the partition's ends have nothing to do."""
    stage: OrderedStage = make_stage()
    bench = Bench(stage)
    partition: OrderedPartition = bench.frontier
    assert [] == partition.before_commit({}, START)
    partition.committed()
    partition.aborted()
    partition.close()
    assert partition.due() is None


def test_progress_is_reported_at_most_once_a_second_while_there_is_work():
    """People look once a second; a record for each change would cost more than the change."""
    bench = Bench(make_stage({"c": make_crawl("c")}, partitions=3, delay_s=0), partition=0)
    hosts = [name for n in range(99) if partition_for((name := f"d{n}.test").encode(), 3) == 0]
    bench.task(f"http://{hosts[0]}/", "c")
    ((output, progress),) = reports(bench.tick())
    assert (b"c/0", -1) == (output.key, output.partition)
    assert ("c", 0, 0, 1, 1) == tuple(progress[name] for name in ("crawl", "partition", "waiting", "out", "seen"))
    bench.task(f"http://{hosts[1]}/", "c")
    assert [] == reports(bench.tick(0.5))
    assert START + 1 == bench.frontier.due()
    assert [2] == [progress["out"] for _, progress in reports(bench.tick(0.5))]
    assert [] == reports(bench.tick(50))


def test_progress_is_reported_at_once_when_nothing_is_left_to_do():
    """The end of a crawl is seen by it."""
    bench = Bench(make_stage())
    bench.task(A)
    (lane,) = bench.emitted()
    bench.now += 0.1
    bench.outcome(lane, "FETCHED")
    assert bench.now >= (bench.frontier.due() or 0)
    assert [(0, 0, 1)] == [
        (progress["waiting"], progress["out"], progress["done"]) for _, progress in reports(bench.tick())
    ]


def test_a_change_that_was_not_reported_before_a_restart_is_reported_after_it():
    """A crawl could not end if its last change were known to the state alone."""
    bench = Bench(make_stage())
    bench.task(A)
    bench.tick()
    bench.task("http://b.test/")
    bench.tick(1)
    lane = {"crawl": "default", "url": A, "url_key": bytes(16), "delivery": 1}
    bench.send(topics.PARSED, make_parsed(lane, []))
    bench.reopen()
    assert [1] == [progress["pages_parsed"] for _, progress in reports(bench.tick())]
    bench.reopen()
    assert [] == reports(bench.tick(5))


def test_what_there_is_no_time_for_in_one_tick_is_done_in_the_next(monkeypatch):
    """A transaction must stay small, however much becomes due at once."""
    monkeypatch.setattr(partition_module, "TURNS_PER_TICK", 3)
    definitions = {}
    bench = Bench(make_stage(definitions, delay_s=0))
    for number in range(8):
        bench.task(f"http://d{number}.test/", "late")
    definitions["late"] = make_crawl("late")
    given = [len(bench.urls(after_s=1)), len(bench.urls()), len(bench.urls())]
    assert [3, 3, 2] == given
    assert (0, 8) == (bench.progress("late")["parked"], bench.progress("late")["out"])


def test_parsed_records_count_pages_and_announce_link_records():
    """The end of a crawl rests on these counts, by target partition."""
    bench = Bench(make_stage(partitions=3))
    lane = {"crawl": "default", "url": A, "url_key": bytes(16), "delivery": 1}
    bench.send(topics.PARSED, make_parsed(lane, [0, 2, 2]))
    bench.send(topics.PARSED, make_parsed(lane, []))
    bench.reopen()
    assert (2, [1, 0, 2]) == tuple(bench.progress()[name] for name in ("pages_parsed", "links_sent"))


def test_the_answer_of_a_page_that_had_one_before_counts_only_what_it_announces():
    """A page that comes back from the dead letters was counted with its letter; its links were not."""
    bench = Bench(make_stage(partitions=3))
    lane = {"crawl": "default", "url": A, "url_key": bytes(16), "delivery": 1}
    bench.send(topics.PARSED, make_parsed(lane, []))
    bench.send(topics.PARSED, make_parsed(lane, [0, 2]), headers=(("answered-before", b"1"),))
    assert (1, [1, 0, 1]) == tuple(bench.progress()[name] for name in ("pages_parsed", "links_sent"))


def test_a_parsed_record_for_a_partition_that_there_is_not_changes_nothing():
    """Parse and frontier must agree on the partition count; a wrong one is a dead letter."""
    bench = Bench(make_stage(partitions=3))
    lane = {"crawl": "default", "url": A, "url_key": bytes(16), "delivery": 1}
    with pytest.raises(InputError, match="link_records"):
        bench.send(topics.PARSED, make_parsed(lane, [3]))
    assert not any(bench.view.rows(table) for table in TABLES)


def test_what_is_due_is_done_and_then_not_due_any_more():
    """A runner that finds the same work due for ever spins."""
    bench = Bench(make_stage())
    for number in range(5):
        bench.task(f"{A}{number}")
    lanes = bench.emitted()
    assert 2 == len(lanes)
    for _ in range(20):
        due = bench.frontier.due()
        if due is None:
            break
        assert due > bench.now
        bench.now = due
        bench.tick()
    assert bench.frontier.due() == bench.now + 10  # leases of what is out


def test_everything_works_over_the_real_view_too(tmp_path):
    """The fake stands for the staged view over RocksDB: one life of a few URLs over both, to the same end."""
    store = PartitionStore(tmp_path / "0", TABLES)
    real = Bench(make_stage(delay_s=0), StagedView(store, TABLES))
    fake = Bench(make_stage(delay_s=0))
    applied = 0
    for bench in (real, fake):
        bench.links([f"http://d{number}.test/{page}" for number in range(5) for page in range(20)])
    for _ in range(4):
        given = [bench.emitted(after_s=1) for bench in (real, fake)]
        assert given[0] == given[1]
        for lane in given[0]:
            kind = ("FETCHED", "NETWORK_ERROR", "HTTP_ERROR")[lane["url_key"][0] % 3]
            for bench in (real, fake):
                bench.outcome(lane, kind, status=404 if kind == "HTTP_ERROR" else None)
        changes = real.view.changes()
        store.apply(changes, applied := applied + len(changes), real.now)
        real.view.clear()
        fake.view.commit()
        for bench in (real, fake):
            bench.reopen()
        assert real.progress() == fake.progress()
    for table in TABLES:
        assert fake.view.rows(table) == dict(real.view.items(table))
    store.close()

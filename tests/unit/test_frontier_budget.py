from __future__ import annotations

import pytest

from pipeline import topics
from pipeline.errors import InputError
from pipeline.frontier.records import HELD, TABLES
from pipeline.web.partition import partition_for
from tests.frontier_world import Bench, decode, make_crawl, make_stage

A = "http://a.test/"
PARTITIONS = 4
KEEPER = partition_for(b"c", PARTITIONS)
OTHER = (KEEPER + 1) % PARTITIONS


def domain(partition, number=0):
    """A domain of a partition."""
    names = (name for n in range(1_000) if partition_for((name := f"d{n}.test").encode(), PARTITIONS) == partition)
    return [next(names) for _ in range(number + 1)][-1]


def urls(partition, count):
    """Pages of one domain of a partition."""
    return [f"http://{domain(partition)}/{number}" for number in range(count)]


def make_bench(partition, max_pages, **fields):
    """A partition with one crawl, `c`; the definitions can be changed."""
    definitions = {"c": make_crawl("c", max_pages=max_pages, **fields)}
    bench = Bench(make_stage(definitions, PARTITIONS, delay_s=0), partition=partition)
    bench.definitions = definitions
    return bench


def grants(outputs):
    """The grant records among outputs: kind, partition, pages, and where they go."""
    return [
        (record["kind"], record["partition"], record["pages"], output.partition)
        for output in outputs
        if output.topic == topics.GRANTS.name
        for record in [decode(output)]
    ]


def grant(kind, partition, pages, crawl="c"):
    """A grant record."""
    return {"crawl": crawl, "kind": kind, "partition": partition, "pages": pages, "bytes": 0, "day": 0}


def test_a_partition_asks_the_keeper_for_what_it_needs():
    """At most twenty at once: what lies unused here is missing elsewhere."""
    bench = make_bench(OTHER, 1_000)
    assert [("ASK", OTHER, 1, KEEPER)] == grants(bench.links(urls(OTHER, 1), "c"))
    assert [] == grants(bench.links(urls(OTHER, 50), "c"))
    assert [] == bench.urls()
    progress = bench.progress("c")
    assert (50, 50, 0) == tuple(progress[name] for name in ("waiting", "parked", "out"))
    many = make_bench(OTHER, 1_000)
    assert [("ASK", OTHER, 20, KEEPER)] == grants(many.links(urls(OTHER, 50), "c"))


def test_a_grant_lets_as_many_tasks_go_and_more_is_asked_for():
    """A page is charged when its task is given out; an ask goes out before the last page is spent."""
    bench = make_bench(OTHER, 1_000)
    bench.links(urls(OTHER, 50), "c")
    bench.tick()
    bench.reopen()
    assert [] == grants(bench.send(topics.GRANTS, grant("GIVE", OTHER, 20)))
    outputs = bench.tick()
    assert 20 == len([output for output in outputs if output.topic == topics.LANE_NORMAL.name])
    assert [("ASK", OTHER, 20, KEEPER)] == grants(outputs)
    assert (30, 20) == (bench.progress("c")["parked"], bench.progress("c")["out"])


def test_a_page_is_refunded_when_the_outcome_brought_none():
    """The budget counts pages, not attempts."""
    bench = make_bench(OTHER, 1_000)
    bench.links(urls(OTHER, 3), "c")
    bench.send(topics.GRANTS, grant("GIVE", OTHER, 1))
    for _ in range(2):
        (lane,) = bench.emitted()
        bench.outcome(lane, "HTTP_ERROR", status=404)
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    assert [] == bench.urls(after_s=100)
    assert (1, 2) == (bench.progress("c")["pages_fetched"], bench.progress("c")["failed"])


def test_a_retry_is_charged_once():
    """Each delivery is charged, and each that brings nothing is refunded."""
    bench = make_bench(OTHER, 1_000)
    bench.links(urls(OTHER, 1), "c")
    bench.send(topics.GRANTS, grant("GIVE", OTHER, 1))
    (lane,) = bench.emitted()
    bench.outcome(lane, "NETWORK_ERROR")
    (lane,) = bench.emitted(after_s=1)
    bench.outcome(lane, "FETCHED")
    assert 1 == bench.progress("c")["pages_fetched"]


def test_the_keeper_gives_until_the_budget_is_spent_and_keeps_the_rest_of_the_asks():
    """Never more than the budget has; who comes too late waits, and is served when pages come back."""
    bench = make_bench(KEEPER, 30)
    two, three = (KEEPER + 2) % PARTITIONS, (KEEPER + 3) % PARTITIONS
    assert [("GIVE", OTHER, 20, OTHER)] == grants(bench.send(topics.GRANTS, grant("ASK", OTHER, 20)))
    assert [("GIVE", two, 10, two)] == grants(bench.send(topics.GRANTS, grant("ASK", two, 20)))
    assert [] == grants(bench.send(topics.GRANTS, grant("ASK", three, 7)))
    assert [] == grants(bench.send(topics.GRANTS, grant("ASK", OTHER, 20)))
    bench.reopen()
    outputs = bench.send(topics.GRANTS, grant("RETURN", two, 9))
    assert [("GIVE", three, 7, three), ("GIVE", OTHER, 2, OTHER)] == grants(outputs)


def test_the_keeper_serves_itself_without_a_record():
    """Its own partition needs pages too."""
    bench = make_bench(KEEPER, 2)
    assert [] == grants(bench.links(urls(KEEPER, 3), "c"))
    lanes = bench.emitted()
    assert 2 == len(lanes)
    bench.reopen()
    bench.outcome(lanes[0], "HTTP_ERROR", status=404)
    assert 1 == len(bench.emitted(after_s=1))
    assert [] == bench.emitted(after_s=100)


def test_a_larger_budget_lets_waiting_partitions_go_on():
    """A crawl is resumed with more pages: the same definition, another number."""
    bench = make_bench(KEEPER, 1)
    bench.links(urls(KEEPER, 3), "c")
    (lane,) = bench.emitted()
    bench.outcome(lane, "FETCHED")
    bench.send(topics.GRANTS, grant("ASK", OTHER, 5))
    assert [] == bench.urls(after_s=100)
    bench.definitions["c"] = make_crawl("c", max_pages=10)
    outputs = bench.tick(10)
    assert [("GIVE", OTHER, 5, OTHER)] == grants(outputs)
    assert 2 == len([output for output in outputs if output.topic == topics.LANE_NORMAL.name])


def test_a_budget_that_is_lifted_lets_all_go():
    """No limit any more: nothing is held by it."""
    bench = make_bench(OTHER, 1)
    bench.links(urls(OTHER, 9), "c")
    assert [] == bench.urls()
    bench.definitions["c"] = make_crawl("c")
    assert 9 == len(bench.urls(after_s=10))
    assert not bench.view.rows(HELD)


def test_a_definition_that_comes_back_is_asked_for_pages_again():
    """A crawl whose definition was gone for a while must not stand still for ever."""
    bench = make_bench(OTHER, 1_000)
    bench.links(urls(OTHER, 2), "c")
    bench.tick()
    definition = bench.definitions.pop("c")
    bench.send(topics.GRANTS, grant("GIVE", OTHER, 2))
    assert [("RETURN", OTHER, 2, KEEPER)] == grants(bench.tick(31))
    bench.definitions["c"] = definition
    assert [("ASK", OTHER, 2, KEEPER)] == grants(bench.tick(10))


def test_unused_pages_go_back_when_nothing_here_would_use_them():
    """Otherwise another partition waits for pages that nobody spends."""
    bench = make_bench(OTHER, 1_000)
    bench.links(urls(OTHER, 1), "c")
    bench.send(topics.GRANTS, grant("GIVE", OTHER, 20))
    (lane,) = bench.emitted()
    assert [] == grants(bench.tick(60))
    bench.outcome(lane, "FETCHED")
    assert [] == grants(bench.tick(0.1))
    assert bench.frontier.due() is not None
    bench.reopen()
    assert [("RETURN", OTHER, 19, KEEPER)] == grants(bench.tick(60))
    assert [] == grants(bench.tick(60))


def test_pages_go_back_while_all_that_would_use_them_waits_for_its_time():
    """A domain held for a day must not keep pages from the others for a day."""
    bench = make_bench(OTHER, 1_000)
    bench.task(urls(OTHER, 1)[0], "c", not_before_ms=int((bench.now + 86_400) * 1000))
    bench.send(topics.GRANTS, grant("GIVE", OTHER, 5))
    assert [] == grants(bench.tick(29))
    assert [("RETURN", OTHER, 5, KEEPER), ("ASK", OTHER, 1, KEEPER)] == grants(bench.tick(2))


def test_a_grant_record_goes_on_to_the_partition_it_is_meant_for():
    """Whoever read it by mistake must not spend it."""
    bench = make_bench(OTHER, 1_000)
    two = (KEEPER + 2) % PARTITIONS
    for record, target in (
        (grant("GIVE", two, 3), two),
        (grant("ASK", two, 3), KEEPER),
        (grant("RETURN", two, 3), KEEPER),
    ):
        (output,) = bench.send(topics.GRANTS, record)
        assert (target, record) == (output.partition, decode(output))
    assert not any(bench.view.rows(table) for table in TABLES)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (grant("UNKNOWN", 0, 1), "kind"),
        (grant("ASK", PARTITIONS, 1), "partition"),
        (grant("ASK", -1, 1), "partition"),
        (grant("GIVE", 0, 0), "pages"),
        (grant("GIVE", 0, 2**62), "pages"),
        ({**grant("GIVE", 0, 0), "bytes": 2**62}, "bytes"),
        (grant("GIVE", 0, 1, crawl=""), "crawl"),
        (grant("GIVE", 0, 1, crawl="c" * 256), "crawl"),
    ],
)
def test_a_grant_that_makes_no_sense_changes_nothing(record, field):
    """It becomes a dead letter."""
    bench = make_bench(KEEPER, 10)
    with pytest.raises(InputError) as caught:
        bench.send(topics.GRANTS, record)
    assert ("schema_rejected", field) == (caught.value.reason, caught.value.field)
    assert not any(bench.view.rows(table) for table in TABLES)


def test_a_domain_brings_exactly_its_pages():
    """What is over the budget waits while pages are out that may bring nothing, and is refused once it is spent."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages_per_domain=2)}, delay_s=0))
    bench.links([f"{A}{number}" for number in range(5)] + ["http://b.test/"], "c")
    lanes = bench.emitted()
    assert 3 == len(lanes)
    assert 3 == bench.progress("c")["parked"]
    on_a = [lane for lane in lanes if lane["url"].startswith(A)]
    bench.outcome(on_a[0], "HTTP_ERROR", status=404)
    bench.reopen()
    (third,) = bench.emitted()
    bench.outcome(on_a[1], "FETCHED")
    bench.links([A + "late"], "c")
    assert [] == bench.emitted()
    bench.outcome(third, "FETCHED")
    assert [] == bench.emitted()
    bench.links([A + "later"], "c")
    progress = bench.progress("c")
    assert (0, 0, {"domain_budget": 4}) == tuple(progress[name] for name in ("waiting", "parked", "refused"))
    assert not bench.view.rows(HELD)


def test_the_configured_domain_budget_holds_for_crawls_that_say_nothing():
    """A definition's own number goes before it."""
    bench = Bench(make_stage({"own": make_crawl("own", max_pages_per_domain=3)}, delay_s=0, max_pages_per_domain=1))
    for crawl in ("own", "default"):
        bench.links([f"{A}{number}" for number in range(5)], crawl)
    assert ["default", "own", "own", "own"] == sorted(lane["crawl"] for lane in bench.emitted())


def test_a_task_that_is_held_blocks_no_other_crawl():
    """One crawl's spent budget must not stop a domain for everybody."""
    bench = Bench(make_stage({"c": make_crawl("c", max_pages_per_domain=1)}, delay_s=0))
    bench.links([f"{A}{number}" for number in range(5)], "c")
    bench.task(A)
    assert 2 == len(bench.emitted())


def test_a_held_task_that_is_wished_with_more_haste_goes_first():
    """An urgent wish is served with the next page that is granted."""
    bench = make_bench(OTHER, 1_000)
    pages = urls(OTHER, 3)
    bench.links(pages, "c")
    bench.tick()
    bench.task(pages[2], "c", priority=1)
    bench.reopen()
    bench.send(topics.GRANTS, grant("GIVE", OTHER, 1))
    assert [pages[2]] == bench.urls()

from __future__ import annotations

from pipeline.ops.recent_outcomes import WINDOW_S, OutcomeWindow, Rates
from pipeline.ops.top import Answers, per_s, ranked, totals


def answers(at_s, **partitions):
    """What workers said: `answers(0.0, p0=5)` is a partition that has seen 5 URLs."""
    rows = {int(name[1:]): {"seen": count, "done": 0, "links_received": 0} for name, count in partitions.items()}
    return Answers(at_s, ("frontier-0",), rows, ())


def domain(name, normal, out=0, due_ms=0):
    """A row of a domain."""
    return {"domain": name, "waiting": {"urgent": 0, "normal": normal, "bulk": 0}, "out": out, "due_ms": due_ms}


def test_totals_are_summed_over_partitions():
    """However many workers there are."""
    assert {"seen": 7, "done": 0, "links_received": 0} == totals(answers(0.0, p0=5, p1=2))


def test_rates_are_the_growth_between_two_looks():
    """Of all partitions together."""
    assert 6.0 == per_s(answers(10.0, p0=0, p1=0), answers(12.0, p0=8, p1=4))["seen"]
    assert None is per_s(None, answers(1.0, p0=1))


def test_a_partition_that_moves_is_no_leap():
    """It is told of at one look only: its whole count would pass for growth, or for a loss."""
    assert 1.0 == per_s(answers(0.0, p0=10, p1=900), answers(2.0, p0=12, p2=700))["seen"]


def test_the_domains_with_most_to_do_come_first():
    """And among equals the one that was due first."""
    rows = (domain("few.test", 1), domain("late.test", 5, due_ms=9), domain("early.test", 3, out=2, due_ms=1))
    found = ranked(rows, {"few.test": Rates(60.0, 0.0, 60.0)}, 3)
    assert ["early.test", "late.test", "few.test"] == [row["domain"] for row in found]
    assert [0.0, 0.0, 60.0] == [row["per_min"]["pages"] for row in found]
    assert 1 == len(ranked(rows, {}, 1))


def test_outcomes_are_counted_by_domain_and_kind():
    """Per minute, also while less than a minute was looked at."""
    window = OutcomeWindow(0.0)
    window.add([("a.test", "FETCHED")] * 3 + [("a.test", "HTTP_ERROR"), ("b.test", "DEFERRED")], 15.0)
    total, by_domain = window.rates(30.0)
    assert Rates(6.0, 2.0, 10.0) == total
    assert {"a.test": Rates(6.0, 2.0, 8.0), "b.test": Rates(0.0, 0.0, 2.0)} == by_domain


def test_what_is_older_than_a_minute_counts_no_more():
    """A site that has come to rest must show it."""
    window = OutcomeWindow(0.0)
    window.add([("a.test", "FETCHED")], 1.0)
    window.add([("b.test", "FETCHED")], 1.0 + WINDOW_S)
    total, by_domain = window.rates(1.0 + WINDOW_S)
    assert (1.0, ["b.test"]) == (total.pages, list(by_domain))


def test_nothing_has_come():
    """A look at once after the start divides by nothing."""
    assert (Rates(), {}) == OutcomeWindow(5.0).rates(5.0)

"""What the benchmark of urgent tasks calls fetched first."""

from __future__ import annotations

from bench.urgent import OF_BACKLOG, READING_S, Request, Sent, _figures

URL = "http://a.test:1/urgent/1"


def figures(*others_s):
    """One task, in its lane after 0.2 s, its request after 2 s; other requests of its domain at times of theirs."""
    requests = [Request(f"http://a.test:1/bulk/{at_s}", at_s, at_s) for at_s in others_s]
    requests += [Request(URL, 2.0, 2.1), Request("http://b.test:1/bulk/1", 1.0, 1.1)]
    return _figures([Sent(URL, OF_BACKLOG, 0.0)], {URL: 0.2}, requests)


def test_a_request_of_its_domain_in_between_means_that_it_was_not_first():
    """Otherwise the goal would be reached by whatever order."""
    found = figures(0.2 + READING_S + 0.1, 1.5)
    assert (0.0, 2, 1.3) == (found.first, found.overtaken, found.other_s)


def test_what_began_before_fetch_had_read_the_record_and_what_came_after_do_not_count():
    """No worker can know of a record before it has it; other domains are nobody's rivals."""
    found = figures(0.1, 0.2 + READING_S / 2, 3.0)
    assert (1.0, 0) == (found.first, found.overtaken)
    assert (0.2, 2.0) == (found.lane.p99, found.request.p99)


def test_a_phase_without_requests_before_tells_no_late_one():
    """A domain of its own has no rival."""
    assert 0.0 == figures().other_s

from __future__ import annotations

import pytest

from pipeline.frontier.ending import CrawlEnd


def row(partition, **fields):
    """Progress of a partition in which nothing has happened but `fields`."""
    progress = {
        "partition": partition, "waiting": 0, "parked": 0, "out": 0, "tasks_received": 0, "redirects_received": 0,
        "redirects_sent": 0, "pages_fetched": 0, "pages_parsed": 0, "links_received": 0, "links_sent": [0, 0],
        "done": 0, "bytes_received": 0, "recurring": 0, "pages_polled": 0,
    }  # fmt: skip
    return {**progress, **fields}


DONE = [
    row(0, tasks_received=1, pages_fetched=2, pages_parsed=1, links_sent=[1, 1], links_received=2, redirects_sent=1),
    row(1, pages_parsed=1, links_sent=[1, 0], links_received=1, redirects_received=1),
]


def test_a_crawl_has_ended_when_two_looks_in_a_row_agree():
    """One look may be made of reports of different times."""
    end = CrawlEnd(2)
    assert [False, True] == [end.observe(DONE, 1), end.observe(DONE, 1)]


def test_counts_that_moved_between_two_looks_are_no_end():
    """In balance twice, but not the same: something was under way."""
    end = CrawlEnd(2)
    moved = [{**DONE[0], "pages_fetched": 3, "pages_parsed": 2}, DONE[1]]
    assert [False, False, True] == [end.observe(DONE, 1), end.observe(moved, 1), end.observe(moved, 1)]


@pytest.mark.parametrize(
    "fields",
    [
        {"waiting": 1},
        {"out": 1},
        {"waiting": 1, "parked": 1},
        {"waiting": 2, "out": 1, "recurring": 2},
        {"waiting": 2, "parked": 1, "recurring": 1},
        {"pages_fetched": 3},
        {"pages_parsed": 2},
        {"redirects_sent": 2},
        {"links_sent": [1, 2]},
        {"links_received": 3},
        {"tasks_received": 0},
    ],
    ids=str,
)
def test_anything_that_is_left_or_under_way_is_no_end(fields):
    """Each count guards against one kind of record that was sent and has not arrived."""
    end = CrawlEnd(2)
    rows = [{**DONE[0], **fields}, DONE[1]]
    assert [False, False, False] == [end.observe(rows, 1) for _ in range(3)]


@pytest.mark.parametrize("stranger", [row(2), row(-1), row(1, links_sent=[]), row(1, links_sent=[0, 0, 0])], ids=str)
def test_progress_that_no_partition_of_ours_has_written_is_passed_over(stranger):
    """Something else may write to the topic; it must neither end a crawl nor keep it from its end."""
    end = CrawlEnd(2)
    assert [False, True] == [end.observe([*DONE, stranger], 1) for _ in range(2)]


def test_nothing_reported_is_no_end_while_tasks_were_submitted():
    """The first progress comes a moment after the first task."""
    end = CrawlEnd(2)
    assert [False, False] == [end.observe([], 1), end.observe([], 1)]
    assert [False, True] == [end.observe([row(1, tasks_received=1)], 1) for _ in range(2)]


def test_links_to_a_partition_that_has_reported_nothing_are_under_way():
    """A missing partition counts as empty, not as agreed."""
    end = CrawlEnd(2)
    rows = [row(0, tasks_received=1, links_sent=[0, 1])]
    assert [False, False] == [end.observe(rows, 1) for _ in range(2)]


@pytest.mark.parametrize(("fetched", "ended"), [(9, False), (10, True), (11, True)])
def test_tasks_held_by_the_budget_end_the_crawl_only_when_it_is_spent(fetched, ended):
    """As long as it isn't, a grant for them is on its way between partitions, and no count shows it."""
    end = CrawlEnd(2, max_pages=10)
    rows = [row(0, tasks_received=1, waiting=5, parked=5, pages_fetched=fetched, pages_parsed=fetched)]
    assert [False, ended] == [end.observe(rows, 1) for _ in range(2)]


@pytest.mark.parametrize(("received", "ended"), [(99, False), (100, True), (250, True)])
def test_a_spent_budget_of_bytes_ends_a_crawl_as_one_of_pages_does(received, ended):
    """Either is enough; more than the budget may have come with what was out."""
    end = CrawlEnd(2, max_pages=10, max_bytes=100)
    rows = [row(0, tasks_received=1, waiting=5, parked=5, bytes_received=received), row(1)]
    assert [False, ended] == [end.observe(rows, 1) for _ in range(2)]


def test_tasks_held_until_another_day_are_no_end():
    """Their day comes without anybody's doing."""
    end = CrawlEnd(2)
    assert [False, False] == [end.observe([row(0, tasks_received=1, waiting=5, parked=5)], 1) for _ in range(2)]


def test_recurring_work_keeps_no_crawl_from_its_end():
    """Polls never end; a crawl that has nothing else left has, whatever its polls do at the time of a look."""
    end = CrawlEnd(2)
    between = [{**DONE[0], "waiting": 3, "recurring": 3}, DONE[1]]
    polling = [{**DONE[0], "waiting": 1, "out": 2, "recurring": 3, "pages_polled": 7}, DONE[1]]
    assert [False, True] == [end.observe(between, 1), end.observe(polling, 1)]


def test_the_target_of_a_redirected_poll_is_done_or_polled_and_no_sign_of_life():
    """Its URL goes to and fro between the two, poll after poll."""
    end = CrawlEnd(2)
    done = [{**DONE[0], "done": 5}, DONE[1]]
    polled = [{**DONE[0], "done": 4, "out": 1, "recurring": 1}, DONE[1]]
    assert [False, True] == [end.observe(done, 1), end.observe(polled, 1)]


def test_pages_of_polls_are_spent_from_the_budget_too():
    """A crawl whose polls have used its last page will get no more for what the budget holds."""
    end = CrawlEnd(2, max_pages=10)
    rows = [row(0, tasks_received=1, waiting=5, parked=5, pages_fetched=4, pages_parsed=4, pages_polled=6)]
    assert [False, True] == [end.observe(rows, 1) for _ in range(2)]

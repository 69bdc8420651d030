from __future__ import annotations

import pytest

from pipeline.web.refresh import parse_refresh
from pipeline.web.url import resolve
from tests.suites.rows import suite_rows

PAGE = "http://site.test/page"


@pytest.mark.parametrize("row", suite_rows("wpt-html/meta-refresh.jsonl"))
def test_a_refresh_means_what_it_means_to_browsers(row):
    """Pages are made for them. The suite tells the URL as it was resolved."""
    refresh, expected = parse_refresh(row["content"]), row["expect"]
    if expected is None:
        assert refresh is None
        return
    assert refresh is not None
    assert (expected["delay_s"], resolve(expected["url"] or PAGE, PAGE)) == (
        refresh.delay_s,
        resolve(refresh.url or PAGE, PAGE),
    )
    assert (expected["url"] is None) == (refresh.url is None)

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fetch.rate_limit import MAX_FIELD_BYTES, RateLimit, announced
from pipeline.fetch.retry_after import LONGEST_S

NOW = 1_714_564_800.0


def read(headers, **more):
    """What headers, by name, say at `NOW`."""
    lines = {name.encode(): [value.encode()] if isinstance(value, str) else value for name, value in headers.items()}
    return announced(lambda name: lines.get(name, []), NOW, **more)


@pytest.mark.parametrize(
    ("headers", "remaining", "reset_s"),
    [
        ({"ratelimit": '"default";r=50;t=30'}, 50, 30),
        ({"ratelimit": "default;r=50;t=30"}, 50, 30),
        ({"ratelimit": '"default";r=0;t=30;pk=:cHNpY2hvMjI=:'}, 0, 30),
        ({"ratelimit": '"a";r=7', "ratelimit-policy": '"b";q=1;w=9, "a";q=10;w=70'}, 7, 70),
        ({"ratelimit": "limit=100, remaining=5, reset=40"}, 5, 40),
        ({"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "5", "ratelimit-reset": "40"}, 5, 40),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "40"}, 5, 40),
        ({"x-rate-limit-remaining": "5", "x-rate-limit-reset": "40"}, 5, 40),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": f"{NOW + 40:.0f}"}, 5, 40),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": f"{(NOW + 40) * 1000:.0f}"}, 5, 40),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": f"{NOW + 40:.0f}.5"}, 5, 40.5),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": formatdate(NOW + 40, usegmt=True)}, 5, 40),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset-after": "1.25", "x-ratelimit-reset": "9"}, 5, 1.25),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW - 40:.0f}"}, 0, 0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2592000"}, 0, 2_592_000),
    ],
)
def test_all_styles_mean_the_same(headers, remaining, reset_s):
    """A site chooses how it says it; the limit is one."""
    assert (RateLimit(remaining, reset_s), 0) == read(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ratelimit-remaining": "5"},
        {"x-ratelimit-reset": "40"},
        {"ratelimit": '"default";r=5'},
        {"ratelimit-policy": '"default";q=100;w=60'},
    ],
)
def test_half_a_limit_is_none(headers):
    """Without a number or an end there is nothing to share out; nothing was said wrongly either."""
    assert (None, 0) == read(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"ratelimit": '"default";r=5;t=-1'},
        {"ratelimit": '"default";r=5;t="soon"'},
        {"ratelimit": '"default";t=5'},
        {"ratelimit": '"default";r=0'},
        {"ratelimit": "50 of 100"},
        {"ratelimit-remaining": "-1", "ratelimit-reset": "40"},
        {"ratelimit-remaining": "many", "ratelimit-reset": "40"},
        {"ratelimit-remaining": "9" * 20, "ratelimit-reset": "40"},
        {"ratelimit-remaining": "5", "ratelimit-reset": "2592001"},
        {"ratelimit-remaining": "5", "ratelimit-reset": "99999999999999999999"},
        {"ratelimit-remaining": "5", "ratelimit-reset": f"{NOW - 100_000:.0f}"},
        {"ratelimit-remaining": "5", "ratelimit-reset": f"{NOW + LONGEST_S + 1:.0f}"},
        {"ratelimit-remaining": "5", "ratelimit-reset": "2024-05-01T12:00:00Z"},
    ],
)
def test_what_is_absurd_is_ignored_and_counted(headers):
    """A site that was never asked again because of a slip of the pen would be lost."""
    assert (None, 1) == read(headers)


def test_of_several_limits_the_one_with_the_longest_pause_counts():
    """A burst that is open says nothing about a day that is spent."""
    assert RateLimit(10, 3_600) == read({"ratelimit": '"burst";r=0;t=1, "day";r=10;t=3600'}).limit
    assert RateLimit(0, 60) == read({"ratelimit": '"burst";r=0;t=60, "day";r=500;t=3600'}).limit
    both = {"ratelimit": '"a";r=5;t=10', "x-ratelimit-remaining": "1", "x-ratelimit-reset": "60"}
    assert RateLimit(1, 60) == read(both).limit
    assert (RateLimit(5, 10), 1) == read({**both, "x-ratelimit-reset": "never"})


def test_a_clock_that_is_behind_shortens_nothing():
    """A reset that is a time is the site's time: its Date says what the time is there. A pause needs no clock."""
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{NOW + 40:.0f}"}
    assert 100 == read(headers, site_now=NOW - 60).limit.reset_s
    assert 40 == read(headers, site_now=NOW + 60).limit.reset_s
    assert 40 == read({"ratelimit": '"a";r=0;t=40'}, site_now=NOW - 60).limit.reset_s


FIELDS = st.sampled_from(
    ["ratelimit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset", "x-ratelimit-remaining",
     "x-ratelimit-reset", "x-ratelimit-reset-after", "x-rate-limit-remaining", "x-rate-limit-reset"]
)  # fmt: skip
LINES = st.lists(st.binary(max_size=40) | st.from_regex(rb'"a";r=[0-9]*;t=[0-9]*', fullmatch=True), max_size=2)


@given(st.dictionaries(FIELDS, LINES))
def test_no_bytes_are_an_error(headers):
    """Sites send anything; what is believed is within its bounds."""
    limit, ignored = read(headers)
    assert ignored >= 0
    assert limit is None or (limit.remaining >= 0 and 0 <= limit.reset_s <= LONGEST_S)


def test_a_field_without_end_is_not_read():
    """Nobody has so many policies; reading them would cost the worker's time."""
    assert (None, 0) == read({"ratelimit": ", ".join(['"a";r=0;t=9'] * MAX_FIELD_BYTES)})

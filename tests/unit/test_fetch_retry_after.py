from __future__ import annotations

import calendar
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fetch.retry_after import LONGEST_S, retry_after_s

NOW = calendar.timegm((2024, 5, 1, 12, 0, 0))


@given(st.integers(0, 86_400))
def test_both_forms_mean_the_same(seconds):
    """A site chooses the form; the wish is one."""
    assert seconds == retry_after_s([str(seconds)], NOW)
    assert seconds == retry_after_s([formatdate(NOW + seconds, usegmt=True)], NOW)


@given(st.text(max_size=40))
def test_no_text_is_an_error(text):
    """Nonsense is no value (RFC 9110 10.2.3), and nothing else."""
    wish = retry_after_s([text], NOW)
    assert wish is None or 0 <= wish <= LONGEST_S


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 31 Apr 2024 12:00:00 GMT",
        "Wed, 01 May 2024 24:00:00 GMT",
        "Wed, 01 May 2024 12:60:00 GMT",
        "Wed, 01 May 0000 12:00:00 GMT",
        "Wed, 01 May 2024 12:02:00",
        "2024-05-01T12:02:00Z",
        "١٢٠",
    ],
)
def test_a_date_that_does_not_exist_is_no_value(text):
    """Guessing would shorten a wish or stretch it."""
    assert retry_after_s([text], NOW) is None


def test_a_two_digit_year_is_the_nearest_sensible_one():
    """RFC 9110 5.6.7: one that seems more than 50 years ahead is in the past."""
    assert 0 == retry_after_s(["Sunday, 06-Nov-94 08:49:37 GMT"], NOW)
    assert LONGEST_S == retry_after_s(["Sunday, 06-Nov-50 08:49:37 GMT"], NOW)


def test_the_longest_of_several_wishes_counts():
    """A site's wish is never shortened."""
    assert 120 == retry_after_s(["10", "soon", " 120 "], NOW)
    assert retry_after_s([], NOW) is None

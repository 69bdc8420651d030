from __future__ import annotations

import pytest

from pipeline.parse.dates import any_date, is_plausible, rfc822_date, w3c_date

FETCHED_AT_S = 1_717_172_775.0  # 2024-05-31T16:26:15Z


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2024", "2024"),
        ("2024-05", "2024-05"),
        ("2024-05-10", "2024-05-10"),
        ("2024-05-10T08:00Z", "2024-05-10T08:00:00Z"),
        ("2024-05-10T08:00:01+02:00", "2024-05-10T06:00:01Z"),
        ("2024-05-10T08:00:01.25-07:00", "2024-05-10T15:00:01.25Z"),
        (" 2024-05-10 08:00:00 +0200 ", "2024-05-10T06:00:00Z"),
        ("2024-05-10t08:00:00z", "2024-05-10T08:00:00Z"),
        ("2024-05-10 08:00 UTC", "2024-05-10T08:00:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
    ],
)
def test_the_forms_of_w3c_are_read_in_their_own_precision(written, expected):
    """A date is not midnight somewhere, and a month is not its first day."""
    assert expected == w3c_date(written)


@pytest.mark.parametrize(
    "written",
    [
        "", "yesterday", "2024-02-30", "2024-13-01", "2024-1-2", "20240102", "10/05/2024", "2024-05-10T25:00:00Z",
        "2024-05-10T08:00:61Z", "2024-05-10T08:00:00+24:00", "9999-12-31T23:59:59-01:00", "0000-01-01",
        "2024-05-10T08:00:00Z 2024-05-11T08:00:00Z", "\u0662\u0660\u0662\u0664-05-10", "2" * 10_000,
    ],
)  # fmt: skip
def test_what_is_no_date_is_none(written):
    """A wrong date is worse than none: it is believed."""
    assert w3c_date(written) is None


@pytest.mark.parametrize(
    "written", ["2024-05-10T08:00:00", "2024-05-10 08:00", "Fri, 10 May 2024 08:00:00", "Fri, 10 May 2024 08:00 XYZ"]
)
def test_a_time_of_day_without_a_known_zone_is_none(written):
    """It could be any of 26 hours; a reader would sort by it."""
    assert any_date(written) is None


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Fri, 10 May 2024 08:00:00 GMT", "2024-05-10T08:00:00Z"),
        ("10 May 2024 08:00 EST", "2024-05-10T13:00:00Z"),
        ("Friday, 10-May-24 08:00:00 UTC", "2024-05-10T08:00:00Z"),
        ("Fri, 10 May 2024 08:00:00 -0000", "2024-05-10T08:00:00Z"),
        ("Sat,  1 Jan 00 00:00:00 +0000", "2000-01-01T00:00:00Z"),
        ("1 Jan 50 00:00:00 +0000", "1950-01-01T00:00:00Z"),
        ("Tue, 3 Sept 2024 10:00:00 +0530", "2024-09-03T04:30:00Z"),
        ("Fri, 10 May 2024", "2024-05-10"),
        ("Fri May 10 2024 08:00:00 GMT+0200", "2024-05-10T06:00:00Z"),
        ("Fri May 10 08:00:00 CEST 2024", "2024-05-10T06:00:00Z"),
        ("Fri, 31 Jun 2024 08:00:00 GMT", None),
        ("Fri, 10 Mayo 2024 08:00:00 GMT", None),
        ("Fri, 10 May 2024 08:00:00 IST", None),
    ],
)
def test_the_dates_of_rfc_822_are_read_with_their_zones(written, expected):
    """Names of zones with several meanings (IST) count as unknown."""
    assert expected == rfc822_date(written)


def test_a_month_is_no_date_for_a_document():
    """RFC 3339 has no months; sitemaps have."""
    assert any_date("2024-05") is None


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("2024-05-31T16:26:15Z", True),
        ("2024-06-01T16:26:15Z", True),
        ("2024-06-01T16:26:16Z", False),
        ("2024-06-01", True),
        ("2024-06-02", False),
        ("2203-11-22", False),
        ("0001-01-01", True),
    ],
)
def test_a_date_is_plausible_until_a_day_after_the_fetch(found, expected):
    """Clocks and zones differ by less; what is later is an expiry date or a typing error."""
    assert expected is is_plausible(found, FETCHED_AT_S)

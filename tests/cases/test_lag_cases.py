"""Acceptance cases of the lag that concern what is measured.

LAG-02 (transaction markers are no lag) needs a broker and stands with the integration tests of the pipeline. LAG-04
(a stuck partition must not scale a deployment up) is about the scaler's recommendation; there is no scaler yet.
"""

from __future__ import annotations

from pipeline.delivery.offsets import OffsetMap
from pipeline.ops.lag import PartitionLag, remaining

# log start, end, committed offset
PARTITIONS = [
    (100_000, 100_000, None),
    (100_000, 100_250, None),
    (0, 0, None),
    (0, 40, 40),
]


def lags(*, from_earliest):
    """Return the lag of each partition."""
    return [
        remaining(
            start, end, None if committed is None else OffsetMap(committed, committed), from_earliest=from_earliest
        )
        for start, end, committed in PARTITIONS
    ]


def test_lag_01_a_partition_that_was_never_committed_has_what_could_still_be_read():
    """End less log start: not the end, which counts records that retention removed, and not a -1 in the sum."""
    assert [0, 250, 0, 0] == lags(from_earliest=True)
    assert 250 == sum(lags(from_earliest=True))


def test_lag_01_a_group_that_would_begin_at_the_end_has_no_lag_and_a_figure_of_its_own_says_why():
    """Zero from ignorance must not look like zero from diligence."""
    assert [0, 0, 0, 0] == lags(from_earliest=False)
    figures = [
        PartitionLag("g", "t", 0, start, end, end, None if committed is None else OffsetMap(committed, committed), 0)
        for start, end, committed in PARTITIONS
    ]
    assert [1, 1, 1, 0] == [figure.never_committed for figure in figures]

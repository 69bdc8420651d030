"""Which open transactions hang, what is said of them, and which may be ended; the bytes of the requests."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.delivery.cluster_client import check
from pipeline.delivery.open_transactions import Coordinated, OpenTransaction, Place
from pipeline.delivery.transaction_requests import (
    AbortMarkersRequest,
    DescribeProducersRequest,
    DescribeProducersRequestV0,
    DescribeProducersResponseV0,
    DescribeTransactionsRequest,
    DescribeTransactionsRequestV0,
    DescribeTransactionsResponseV0,
    ListTransactionsRequest,
    ListTransactionsRequestV0,
    ListTransactionsResponseV0,
    WriteTxnMarkersRequestV1,
    WriteTxnMarkersResponseV1,
)
from pipeline.errors import BrokerError, ConfigurationError
from pipeline.ops.doctor import choose
from pipeline.ops.findings import transaction_findings
from pipeline.ops.transactions import open_transactions
from pipeline.ops.uncommitted import Tail

NOW = 1_000_000.0
LIMIT_S = 20.0
OUT = Place("crawl.documents.v1", 3, 8914)
DLQ = Place("crawl.pages.v1-dlq", 0, 7)
OFFSETS = Place("__consumer_offsets", 1, 40)
ID = "headrace-parse-0"


def coordinated(*places, state="Ongoing", started_at=NOW - 5.0):
    """Make what a coordinator knows."""
    return Coordinated(ID, state, started_at, 10.0, frozenset(place[:2] for place in places))


def opened(place=OUT, age_s=60.0, known=None, producer=7000):
    """Make an open transaction."""
    return OpenTransaction(place, producer, 0, -1, NOW - age_s, known)


# ---- what hangs


def test_what_no_coordinator_counts_hangs():
    """Nobody will write its marker: neither where the producer is unknown, nor where its transaction has ended."""
    assert opened().hangs(NOW, LIMIT_S)
    assert opened(known=coordinated(state="CompleteAbort", started_at=-0.001)).hangs(NOW, LIMIT_S)


def test_what_its_coordinator_counts_does_not_hang_however_old_it_is():
    """Its end is the coordinator's: a marker of ours would cut a transaction in two."""
    assert not opened(age_s=9_999.0, known=coordinated(OUT)).hangs(NOW, LIMIT_S)
    assert opened(known=coordinated(DLQ)).hangs(NOW, LIMIT_S)  # it counts another partition


def test_what_is_young_does_not_hang_yet():
    """A coordinator that moves from one broker to another is seen by none for a moment."""
    assert not opened(age_s=19.0).hangs(NOW, LIMIT_S)
    assert opened(age_s=21.0).hangs(NOW, LIMIT_S)


def test_what_its_coordinator_should_have_ended_is_overdue():
    """The time-out and one round of the reaper are its time."""
    assert not opened(known=coordinated(OUT, started_at=NOW - 19.0)).overdue(NOW)
    assert opened(known=coordinated(OUT, started_at=NOW - 21.0)).overdue(NOW)
    assert not opened(known=coordinated(state="Empty", started_at=-0.001)).overdue(NOW)


# ---- looking


class Cluster:
    """Answers as a cluster of two brokers does: the partitions are led by the first, the second coordinates.

    Args:
        looks: for each question after producers, the open places.
        known: for each look, what the coordinator says of producer 7000; the last one from then on.
        error: with which coordinators answer.
        leaderless: topic of which no broker leads a partition.
    """

    nodes = (1, 2)

    def __init__(self, looks, known=(None,), error=0, leaderless="crawl.links.v1"):
        self._looks = list(looks)
        self._known = list(known)
        self._error = error
        self._leaderless = leaderless

    def leaders(self, topics):
        led = {topic: [0, 1, 3] for topic in topics if topic != self._leaderless}
        return {1: led} if len(led) == len(topics) else {1: led, -1: {self._leaderless: [5]}}

    async def ask(self, node, request):
        if isinstance(request, DescribeProducersRequest):
            assert 1 == node
            return self._producers(self._looks.pop(0))
        if isinstance(request, ListTransactionsRequest):
            told = self._known[0] if node == 2 else None
            rows = [(ID, 7000, told.state, {})] if told else []
            if node == 2 and not rows:
                self._next()
            return ListTransactionsResponseV0(0, self._error, [], rows, {})
        return DescribeTransactionsResponseV0(0, [self._described(self._next())], {})

    def _next(self):
        return self._known.pop(0) if len(self._known) > 1 else self._known[0]

    @staticmethod
    def _producers(places):
        idle = (1, 0, 5, 0, 0, -1, {})
        topics = [
            (
                place.topic,
                [(place.partition, 0, None, [idle, (7000, 0, 5, 990_000_000, -1, place.start_offset, {})], {})],
                {},
            )
            for place in places
        ]
        return DescribeProducersResponseV0(0, topics, {})

    @staticmethod
    def _described(known):
        topics = [(topic, [partition], {}) for topic, partition in known.partitions]
        return (0, ID, known.state, 10_000, int(known.started_at * 1000), 7000, 2, topics, {})


def look(cluster):
    """Look for open transactions."""
    return asyncio.run(open_transactions(cluster, [OUT.topic, "crawl.links.v1"], second_look_s=0.0))


def test_an_open_transaction_is_told_with_what_its_coordinator_knows():
    """The name of the producer tells an operator which worker it was; producers without a transaction are none."""
    known = coordinated(OUT)
    assert [OpenTransaction(OUT, 7000, 0, -1, 990_000.0, known)] == look(Cluster([[OUT]], [known]))


def test_a_transaction_that_ended_between_the_questions_is_not_told():
    """Its coordinator had ended it when it was asked: it would look as if nobody knew it."""
    assert [OUT] == [found.place for found in look(Cluster([[DLQ, OUT], [OUT]]))]


def test_what_a_coordinator_counts_at_the_second_look_is_its_own():
    """One that has just come back knows nothing before it has read its log, and then may commit."""
    known = coordinated(OUT)
    assert [known] == [found.coordinated for found in look(Cluster([[OUT]] * 2, [None, known]))]
    moving = look(Cluster([[OUT, DLQ]] * 2, [coordinated(OUT), coordinated(DLQ)]))
    assert [True, True] == [found.owned for found in moving]


def test_while_a_coordinator_has_no_broker_nothing_is_said():
    """Whatever it counts would look as if nobody knew it."""
    with pytest.raises(BrokerError, match="coordinators"):
        look(Cluster([[OUT]] * 2, leaderless="__transaction_state"))


def test_offsets_come_last():
    """They are what keeps the workers from beginning while anything else still hangs."""
    found = look(Cluster([[OFFSETS, OUT, DLQ]] * 2))
    assert [OUT, DLQ, OFFSETS] == [transaction.place for transaction in found]


def test_while_a_coordinator_is_on_the_move_nothing_is_said():
    """What it would have counted would look as if nobody knew it."""
    with pytest.raises(BrokerError, match="coordinates"):
        look(Cluster([[OUT]] * 2, error=14))


def test_a_refused_user_is_told_from_a_cluster_in_trouble():
    """The operator mends the one, the cluster the other."""
    check(0, "nothing")
    with pytest.raises(ConfigurationError, match="may not"):
        check(53, "transactions")
    with pytest.raises(BrokerError):
        check(15, "transactions")


# ---- what is said


def said(*transactions):
    """Return the findings."""
    tails = {OUT[:2]: Tail(8914, 12)}
    return transaction_findings(transactions, tails, NOW, LIMIT_S)


def test_all_that_one_producer_left_hanging_is_ended_by_one_command():
    """Half of it ended would let the next commit of that producer publish the other half."""
    findings = said(opened(OUT), opened(DLQ), opened(OFFSETS), opened(Place("t", 0, 1), producer=7001))
    command = f"headrace doctor --abort {OUT} --abort {DLQ} --abort {OFFSETS}"
    assert [command] * 3 + ["headrace doctor --abort t/0/1"] == [row.action.partition("then: ")[2] for row in findings]
    assert {"hanging_transaction"} == {row.kind for row in findings}


def test_a_hanging_transaction_is_named_with_place_producer_and_what_it_holds_back():
    """Whoever reads it must find the worker, the readers that wait, and the row in Kafka's own tool."""
    (finding,) = said(opened(known=coordinated(state="CompleteAbort")))
    assert "crawl.documents.v1/3" == finding.place
    for part in ("7000", ID, "epoch 0", "from offset 8914", "1970-01-12T13:45:40+00:00"):
        assert part in finding.text
    wanted = {"topic": OUT.topic, "partition": 3, "start_offset": 8914, "producer_id": 7000, "holds_offsets": False}
    assert wanted.items() <= finding.details.items()
    assert (12, 60.0, "CompleteAbort") == tuple(
        finding.details[key] for key in ("held_back", "age_s", "coordinator_state")
    )


def test_what_is_merely_open_is_no_finding():
    """Every busy partition has one whenever one looks."""
    assert [] == said(opened(age_s=1.0, known=coordinated(OUT)))


def test_what_may_still_clear_is_told_as_such_and_without_a_command_that_ends_it():
    """An abort in the middle of a transaction is worse than a wait."""
    findings = said(opened(age_s=5.0), opened(DLQ, known=coordinated(DLQ, started_at=NOW - 30.0)))
    assert ["unknown_transaction", "overdue_transaction"] == [finding.kind for finding in findings]
    assert "look again in 15 s: then it hangs" == findings[0].action
    assert not any("--abort" in finding.action for finding in findings)


# ---- what may be ended


def chosen(found, *places):
    """Return the places that would be ended."""
    return [transaction.place for transaction in choose(found, places, NOW, LIMIT_S)]


def test_what_hangs_is_ended_offsets_last_whatever_the_order_it_was_asked_for_in():
    """A run that breaks off half-way leaves the workers refusing."""
    assert [OUT, OFFSETS] == chosen([opened(OUT), opened(OFFSETS)], OFFSETS, OUT)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "no transaction is open in crawl.documents.v1/3 from 8914"),
        ([opened(known=coordinated(OUT))], r"does not hang: its coordinator ends it \(headrace-parse-0, Ongoing\)"),
        ([opened(age_s=5.0)], "too young.*try in 15 s"),
    ],
)
def test_what_does_not_hang_is_refused(found, message):
    """A marker in the middle of a live transaction tears it."""
    with pytest.raises(ConfigurationError, match=message):
        chosen(found, OUT)


def test_offsets_are_not_freed_while_outputs_of_the_same_producer_hang():
    """Its worker would begin, and its next commit would publish what hangs beside what it does again."""
    found = [opened(OUT), opened(OFFSETS), opened(DLQ, producer=7001)]
    with pytest.raises(ConfigurationError, match=f"hangs in {OUT} too"):
        chosen(found, OFFSETS)
    assert [OFFSETS] == chosen(found[1:], OFFSETS)  # the other producer's is another matter


@given(
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
)
def test_a_place_is_read_as_it_is_written(topic, partition, offset):
    """The command is copied from one run into the next."""
    place = Place(topic, partition, offset)
    assert place == Place.parse(str(place))


@pytest.mark.parametrize("text", ["", "t", "t/1", "t/1/", "/1/2", "t/x/2", "t/1/-2", "t/1/2/3"])
def test_what_is_no_place_is_refused(text):
    """A slip in a command that ends a transaction must not end another one."""
    with pytest.raises(ConfigurationError, match="TOPIC/PARTITION/START_OFFSET"):
        Place.parse(text)


# ---- bytes


@pytest.mark.parametrize(
    ("request_", "wire", "expected"),
    [
        (
            DescribeProducersRequest({"ab": [0, 3]}),
            DescribeProducersRequestV0,
            "02 03 6162 03 00000000 00000003 00 00",
        ),
        (ListTransactionsRequest([7]), ListTransactionsRequestV0, "01 02 0000000000000007 00"),
        (DescribeTransactionsRequest(["ab"]), DescribeTransactionsRequestV0, "02 03 6162 00"),
        (
            AbortMarkersRequest("ab", 1, producer_id=7, producer_epoch=2, coordinator_epoch=5),
            WriteTxnMarkersRequestV1,
            "02 0000000000000007 0002 00 02 03 6162 02 00000001 00 00000005 00 00",
        ),
    ],
)  # fmt: skip
def test_requests_have_the_bytes_of_the_definition(request_, wire, expected):
    """Compact arrays and strings carry their length plus one, each structure ends with its number of tagged fields."""
    assert bytes.fromhex(expected) == request_.build(wire).encode()


@pytest.mark.parametrize(
    ("wire", "answer", "field", "expected"),
    [
        (
            DescribeProducersResponseV0,
            ("00000000 02 03 6162 02 00000001 0000 00"
                " 02 0000000000000007 00000002 00000004 00000000000003e8 ffffffff 0000000000000009 00 00 00 00"),
            "topics",
            [("ab", [(1, 0, None, [(7, 2, 4, 1000, -1, 9, {})], {})], {})],
        ),
        (
            ListTransactionsResponseV0,
            "00000000 0000 01 02 03 6162 0000000000000007 03 4f6e 00 00",
            "transaction_states",
            [("ab", 7, "On", {})],
        ),
        (
            DescribeTransactionsResponseV0,
            ("00000000 02 0000 03 6162 03 4f6e 000003e8 ffffffffffffffff 0000000000000007 0002"
                " 02 02 74 02 00000001 00 00 00"),
            "transaction_states",
            [(0, "ab", "On", 1000, -1, 7, 2, [("t", [1], {})], {})],
        ),
        (
            WriteTxnMarkersResponseV1,
            "02 0000000000000007 02 02 74 02 00000001 002f 00 00 00 00",
            "markers",
            [(7, [("t", [(1, 47, {})], {})], {})],
        ),
    ],
)  # fmt: skip
def test_answers_are_read_by_the_definition(wire, answer, field, expected):
    """A field that is read at the wrong place would end another producer's transaction."""
    assert expected == getattr(wire.decode(bytes.fromhex(answer)), field)

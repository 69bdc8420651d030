"""When a worker may begin its first transaction, as the brokers' answers tell."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pipeline.config import Broker
from pipeline.delivery import own_transactions as module
from pipeline.delivery.cluster_client import UnknownRequestError
from pipeline.delivery.own_transactions import OwnTransactions
from pipeline.delivery.transaction_requests import (
    DescribeProducersRequest,
    DescribeProducersResponseV0,
    DescribeTransactionsResponseV0,
)
from pipeline.errors import BrokerError

ID, OWN, OTHER = "group-0", 7000, 7001
OUT = "crawl.documents.v1"
MAY_NOT, NO_LONGER_LEADER = 29, 6
AT_ONCE_S = -1.0
PATIENT_S = 60.0


class Cluster:
    """Brokers 1 and 2 lead partitions 0 and 1 of each topic; each look takes the next answer, the last one for ever.

    Args:
        looks: producer ids with a transaction open in partition 1; or an error to raise, or a code to answer with.
        leaderless: whether partition 1 has lost its leader.
    """

    def __init__(self, *looks, leaderless=False):
        self.looks = list(looks)
        self.asked = []
        self._leaderless = leaderless

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        pass

    def leaders(self, topics):
        return {1: {topic: [0] for topic in topics}, -1 if self._leaderless else 2: {topic: [1] for topic in topics}}

    async def transaction_coordinator(self, transactional_id):
        assert ID == transactional_id
        return 2

    async def ask(self, node, request):
        if not isinstance(request, DescribeProducersRequest):
            return DescribeTransactionsResponseV0(0, [(0, ID, "CompleteAbort", 0, -1, OWN, 3, [], {})], {})
        self.asked.append(node)
        if node == 1:
            return DescribeProducersResponseV0(0, [], {})
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        code, producers = (look, []) if isinstance(look, int) else (0, look)
        rows = [(producer, 3, 5, 990_000_000, -1, 40, {}) for producer in producers]
        idle = (OWN, 3, 5, 990_000_000, -1, -1, {})
        return DescribeProducersResponseV0(0, [(OUT, [(1, code, None, [idle, *rows], {})], {})], {})


@pytest.fixture
def wait(monkeypatch):
    """Wait as a worker does that meets this cluster."""
    monkeypatch.setattr(module, "PAUSE_S", 0.0)

    def run(cluster, limit_s=AT_ONCE_S):
        monkeypatch.setattr(module, "ClusterClient", lambda broker: cluster)
        asyncio.run(OwnTransactions(Broker(bootstrap="127.0.0.1:1"), ID, {OUT}).wait_for_end(limit_s))

    return run


def test_a_worker_does_not_begin_while_its_own_producer_has_a_transaction_open(wait):
    """Its next commit to the partition would publish what hangs there; the message says who must act."""
    with pytest.raises(BrokerError, match=rf"producer {OWN} \({ID}\).*open in {OUT}/1, .*`headrace doctor`"):
        wait(Cluster([OWN]))


def test_what_another_producer_has_open_is_nobody_elses_business(wait):
    """Under load some transaction is open in every partition."""
    cluster = Cluster([OTHER])
    wait(cluster)
    assert [1, 2] == sorted(cluster.asked)  # one question to each broker


def test_a_worker_goes_on_as_soon_as_it_was_ended(wait):
    """The operator needs not start it again."""
    cluster = Cluster([OWN], [OWN], [])
    wait(cluster, PATIENT_S)
    assert 3 == cluster.asked.count(2)


@pytest.mark.parametrize("look", [UnknownRequestError("too old"), MAY_NOT], ids=["an old broker", "no right to read"])
def test_brokers_that_can_not_tell_give_a_warning(wait, caplog, look):
    """A cluster that was good enough before the question existed is good enough with it."""
    with caplog.at_level(logging.WARNING):
        wait(Cluster(look))
    assert f"whether an earlier transaction of {ID} hangs is not known" in caplog.text


@pytest.mark.parametrize("look", [BrokerError("away"), NO_LONGER_LEADER], ids=["away", "a leader that moves"])
def test_brokers_that_do_not_tell_now_are_asked_again(wait, look):
    """No answer is no consent; an outage is told as one."""
    wait(Cluster(look, look, []), PATIENT_S)
    with pytest.raises(BrokerError, match="can't be found out"):
        wait(Cluster(look))


def test_a_partition_without_a_leader_is_waited_for(wait):
    """What hangs there would be published when it comes back."""
    with pytest.raises(BrokerError, match=rf"{OUT}/1: no broker leads it"):
        wait(Cluster([], leaderless=True))

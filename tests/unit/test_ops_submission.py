from __future__ import annotations

import pytest

from pipeline.contracts.codec import load_codec
from pipeline.errors import BrokerError, InputError
from pipeline.ops import submission
from pipeline.topics import CRAWLS, TASKS, TASKS_URGENT

NOW_S = 1_700_000_000.25
CODECS = load_codec()


class Undelivered:
    """What librdkafka hands to a delivery report."""

    def __str__(self):
        return "Broker: Not leader"


class RecordingProducer:
    """Takes what a librdkafka producer takes; delivers at `flush`.

    Args:
        room: records that fit into the local queue before it must be polled.
        error: of every delivery; None for success.
    """

    made = None

    def __init__(self, options, *, room=1_000, error=None):
        self.options = options
        self.records = []
        self.error = error
        self._room = room
        self._queue = []
        RecordingProducer.made = self

    def produce(self, topic, value, key, on_delivery):
        if len(self._queue) == self._room:
            raise BufferError
        self._queue.append(on_delivery)
        self.records.append((topic, key, value))

    def poll(self, timeout_s):
        queue, self._queue = self._queue, []
        for report in queue:
            report(self.error, None)

    def flush(self, timeout_s):
        self.poll(timeout_s)
        return 0


@pytest.fixture
def opened(monkeypatch):
    """Open a submission over a recording producer: `opened(room=3)` returns both."""

    def make(**behaviour):
        monkeypatch.setattr(submission, "Producer", lambda options: RecordingProducer(options, **behaviour))
        made = submission.Submission({"bootstrap.servers": "x"}, CODECS)
        return made, RecordingProducer.made

    return make


def test_a_task_goes_to_the_partition_of_its_registrable_domain(opened):
    """The key decides who owns the domain; any other would break politeness."""
    made, producer = opened()
    assert 2 == made.submit(["http://WWW.Example.co.uk/a b", "http://[::1]:8000/"], "c", 3, NOW_S, source="cli")
    [(topic, key, value), (_, second_key, _)] = producer.records
    assert (TASKS.name, b"example.co.uk", b"::1") == (topic, key, second_key)
    task = CODECS.decode(TASKS.subject, value)
    assert "http://www.example.co.uk/a%20b" == task["url"]
    assert ("c", 3, 0, "cli", int(NOW_S * 1000)) == (
        task["crawl"], task["priority"], task["depth"], task["source"], task["submitted_at_ms"],
    )  # fmt: skip


def test_partitions_are_those_of_the_java_client(opened):
    """The C client's own default would deal the same key to another partition than Kafka's tools and Faust do."""
    _, producer = opened()
    assert "murmur2_random" == producer.options["partitioner"]
    assert producer.options["enable.idempotence"]


@pytest.mark.parametrize(
    ("priority", "topic"), [(1, TASKS_URGENT), (2, TASKS), (3, TASKS), (4, TASKS), (5, TASKS)], ids=str
)
def test_urgent_tasks_have_a_topic_of_their_own(opened, priority, topic):
    """A mass submission must not stand before an urgent one."""
    made, producer = opened()
    made.submit(["http://a.test/"], "c", priority, NOW_S)
    assert [topic.name] == [record[0] for record in producer.records]


@pytest.mark.parametrize("bad", ["mailto:x@a.test", "nonsense", "http://"])
def test_nothing_is_half_submitted(opened, bad):
    """Who corrects the list and submits it again must not have to think about what went through."""
    made, producer = opened()
    with pytest.raises(InputError) as refused:
        made.submit(["http://a.test/", bad, "http://b.test/"], "c", 3, NOW_S)
    assert ("invalid_task", "url") == (refused.value.reason, refused.value.field)
    assert [] == producer.records


@pytest.mark.parametrize("priority", [0, 6, -1])
def test_a_priority_that_there_is_not_is_refused(opened, priority):
    """It would be a task that no lane takes."""
    made, producer = opened()
    with pytest.raises(InputError, match=r"1 \(urgent\) to 5 \(bulk\)"):
        made.submit(["http://a.test/"], "c", priority, NOW_S)
    assert [] == producer.records


def test_a_definition_is_keyed_by_its_crawl(opened):
    """The topic is compacted: the key is what a newer definition replaces."""
    made, producer = opened()
    definition = {
        "crawl": "c-1", "start_urls": [], "scope": [], "max_pages": None, "max_depth": None,
        "max_pages_per_domain": None, "delay_ms": None, "created_at_ms": 1,
    }  # fmt: skip
    made.define(definition)
    [(topic, key, value)] = producer.records
    assert (CRAWLS.name, b"c-1") == (topic, key)
    decoded = CODECS.decode(CRAWLS.subject, value)
    assert decoded == decoded | definition


def test_a_full_queue_is_waited_for(opened):
    """A file of a million URLs is larger than the client's queue."""
    made, producer = opened(room=2)
    assert 5 == made.submit([f"http://a.test/{n}" for n in range(5)], "c", 3, NOW_S)
    made.flush()
    assert 5 == len(producer.records)


def test_what_was_not_delivered_is_said(opened):
    """Silence would be taken for success."""
    made, _ = opened(error=Undelivered())
    made.submit(["http://a.test/", "http://b.test/"], "c", 3, NOW_S)
    with pytest.raises(BrokerError, match=r"2 records could not be delivered: .*Not leader"):
        made.flush()


def test_a_crawl_is_named_by_what_it_may_fetch():
    """The same start points and scope are the same crawl, which is how a command resumes."""
    rule = {"action": "ALLOW", "pattern": "http://a.test/*"}
    name = submission.crawl_id(["http://a.test/", "http://b.test/"], [rule], None)
    assert name == submission.crawl_id(["http://b.test/", "http://a.test/"], [rule], None)
    others = [
        submission.crawl_id(["http://a.test/"], [rule], None),
        submission.crawl_id(["http://a.test/", "http://b.test/"], [rule | {"action": "DENY"}], None),
        submission.crawl_id(["http://a.test/", "http://b.test/"], [rule], 0),
    ]
    assert 4 == len({name, *others})

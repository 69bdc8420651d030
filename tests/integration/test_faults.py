"""The table of faults: each row is a fault on a real broker, and what comes of it is counted, not assumed."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient

from pipeline.delivery.exits import ExitCode
from pipeline.local.kafka import LocalBroker
from tests.chaos.points import Action, Armed
from tests.chaos.process import until
from tests.chaos.proxy import Mode, Proxy
from tests.fault_run import FaultRun
from tests.fault_table import KINDS, SESSION_S, TRANSACTION_S, record
from tests.integration.conftest import StageFactory

LONG = [pytest.param(kind, marks=pytest.mark.chaos) for kind in KINDS]
"""Both runners, by `make faults` and `make chaos` alone: these take more than ten seconds each."""
PARTITIONS = 6
"""Two and three workers can share them: the assignor leaves who would get less than the others without any."""
SLOTS = 40
SLOW_S = 1.5
DEADLINE_S = 1

pytestmark = pytest.mark.broker


def elapsed(seconds):
    """Let a fault last: returns when the time has passed."""
    end_s = time.monotonic() + seconds
    until(lambda: time.monotonic() > end_s, "a while", seconds + 1.0)


class Arena:
    """A broker of one's own that may be killed, and for each runner a stage with workers a (behind a proxy) and b."""

    def __init__(self, directory):
        self.proxies = {kind: Proxy() for kind in KINDS}
        ports = [proxy.port for proxy in self.proxies.values()]
        self.broker = LocalBroker(directory / "kafka", advertised_ports=ports)
        self.broker.start()
        for proxy, address in zip(self.proxies.values(), self.broker.proxied_addresses, strict=True):
            proxy.start(address)
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        self._factory = StageFactory(self.broker.bootstrap, admin, directory)
        self._stages = {}

    def stage(self, kind):
        """Return the stage of a runner, its workers started at the first call."""
        if kind not in self._stages:
            stage = self._stages[kind] = self.new_stage(kind)
            until(lambda: len(stage.assigned_to("a")) == len(stage.assigned_to("b")), "half the partitions for each")
        return self._stages[kind]

    def new_stage(self, kind, **settings):
        """Make another stage, with settings of its own, and start its workers."""
        stage = self._factory(kind, partitions=PARTITIONS, pause_s=0.02, timer_s=0.0, slots=SLOTS)
        times = {
            "delivery__session_timeout_s": SESSION_S,
            "delivery__transaction_timeout_s": TRANSACTION_S,
            **settings,
        }
        stage.worker("a", broker__bootstrap=self.proxies[kind].address, **times).start()
        stage.worker("b", **times).start()
        return stage

    @contextmanager
    def run(self, fault, kind, stage=None):
        """Observe a fault on a stage that is well; afterwards the promises are looked at and the figures recorded."""
        stage = stage or self.stage(kind)
        workers = {worker.name: worker for worker in stage.workers}
        with FaultRun(stage, self.broker.bootstrap) as run:
            run.workers = workers
            yield run
        observed = run.observed
        assert (0, 0, 0) == (observed.lost, observed.read_twice, observed.rolled_back), observed
        record(fault, kind, observed)

    def close(self):
        """End everything."""
        for stage in self._factory._stages:
            stage.end()
        for proxy in self.proxies.values():
            proxy.stop()
        self.broker.stop()


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    """The arena of all rows; each leaves it as it was."""
    made = Arena(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["parallel", LONG[1]])
def test_connection_lost(arena, kind):
    """A short loss of the network costs its time, and what was in a transaction."""
    with arena.run("connection_lost", kind) as run:
        run.strike("a")
        arena.proxies[kind].set(Mode.RESET)
        elapsed(SESSION_S / 2)
        arena.proxies[kind].set(Mode.PASS)
        run.until_as_before()


@pytest.mark.parametrize("kind", LONG)
def test_connection_lost_for_long(arena, kind):
    """Who can't reach the broker for longer than its session loses its partitions, and whatever it still does."""
    with arena.run("connection_lost_for_long", kind) as run:
        run.strike("a")
        arena.proxies[kind].set(Mode.STALL)
        run.until(lambda: run.stage.assigned_to("b") == list(range(PARTITIONS)), "all partitions for b")
        run.until_recovered()
        arena.proxies[kind].set(Mode.PASS)
        run.until_as_before()


@pytest.mark.parametrize("kind", KINDS)
def test_backlog_beyond_the_transaction_timeout(arena, kind):
    """A transaction is opened when its work is done, so however long work takes, the broker does not end it."""
    with arena.run("backlog_beyond_the_transaction_timeout", kind) as run:
        run.strike("a")
        for number in range(SLOTS):
            run.send(sorted(run.struck)[number % len(run.struck)], "gate", f"backlog-{run.tag}")
        elapsed(TRANSACTION_S + 1.0)
        run.stage.open_gate(f"backlog-{run.tag}")
        run.until_recovered()
    assert 0 == run.observed.handled_again == run.observed.written_again


@pytest.mark.parametrize("kind", KINDS)
def test_consumer_crash(arena, kind):
    """A killed worker that comes back within its session has its partitions back, and nobody else has noticed."""
    with arena.run("consumer_crash", kind) as run:
        run.strike("a")
        run.stage.arm("a", Armed("before_commit", Action.KILL))
        assert -signal.SIGKILL == run.workers["a"].exit_status()
        run.workers["a"].start()
        run.until_recovered()
    assert run.observed.handled_again > 0


@pytest.mark.parametrize("kind", LONG)
def test_consumer_crash_and_absence(arena, kind):
    """Its partitions wait for the end of its session and of its transaction."""
    with arena.run("consumer_crash_and_absence", kind) as run:
        run.strike("a")
        run.absent.add("a")
        run.stage.arm("a", Armed("before_commit", Action.KILL))
        assert -signal.SIGKILL == run.workers["a"].exit_status()
        run.until(lambda: run.stage.assigned_to("b") == list(range(PARTITIONS)), "all partitions for b")
        run.until_recovered()
        run.absent.clear()
        run.workers["a"].start()
        run.until_as_before()
    assert run.observed.handled_again > 0


@pytest.mark.parametrize("kind", LONG)
def test_broker_crash(arena, kind):
    """Workers outlive their broker, or end with the status that asks for a restart."""
    with arena.run("broker_crash", kind) as run:
        run.strike("a", "b")
        arena.broker.kill()
        arena.broker.start()
        run.until_as_before()
    assert {ExitCode.BROKER, ExitCode.REPLACED} >= set(run.observed.exits)


def stop_beyond_the_session(run, point):
    """Stop `a` at a point until `b` works on all partitions, let it go on, wait for its end and a new start."""
    run.strike("a")
    starts = run.workers["a"].starts
    run.stage.arm("a", Armed(point, Action.STOP))
    run.until(lambda: run.stage.assigned_to("b") == list(range(PARTITIONS)), "all partitions for b")
    run.until_recovered()
    run.workers["a"].send(signal.SIGCONT)
    run.until(lambda: run.workers["a"].starts > starts, "the zombie's end")
    run.until_as_before()


@pytest.mark.parametrize("kind", [LONG[0], "ordered"])
def test_zombie(arena, kind):
    """What it had finished and not committed is done by its heir, and its own results are refused."""
    with arena.run("zombie", kind) as run:
        stop_beyond_the_session(run, "before_begin")
    assert run.observed.handled_again > 0
    assert [ExitCode.REPLACED] == run.observed.exits


@pytest.mark.parametrize("kind", LONG)
def test_zombie_inside_a_transaction(arena, kind):
    """Its open transaction keeps readers and heirs waiting until the broker ends it."""
    with arena.run("zombie_inside_a_transaction", kind) as run:
        stop_beyond_the_session(run, "before_commit")
    assert run.observed.handled_again > 0
    assert [ExitCode.REPLACED] == run.observed.exits


@pytest.mark.parametrize("kind", KINDS)
def test_slow_record(arena, kind):
    """It is overtaken in a parallel stage, and waited for by its worker in an ordered one; nobody does it again."""
    with arena.run("slow_record", kind) as run:
        run.strike("a")
        run.send(min(run.struck), "gate", f"slow-{run.tag}")
        elapsed(SLOW_S)
        run.stage.open_gate(f"slow-{run.tag}")
        run.until_recovered()
    assert 0 == run.observed.handled_again == run.observed.written_again


def test_deadline(arena):
    """A record that never ends is given up; neighbours have overtaken it."""
    stage = arena.new_stage("parallel", delivery__handler_s=DEADLINE_S)
    until(lambda: len(stage.assigned_to("a")) == len(stage.assigned_to("b")), "half the partitions for each")
    with arena.run("deadline", "parallel", stage) as run:
        run.strike("a")
        run.give_up(run.send(min(run.struck), "gate", "never"))
        run.until_recovered()
    stage.end()


@pytest.mark.parametrize("kind", KINDS)
def test_poison_record(arena, kind):
    """Each is one dead letter; nothing around it waits."""
    with arena.run("poison_record", kind) as run:
        run.strike("a")
        for number in range(10):
            run.give_up(run.send(sorted(run.struck)[number % len(run.struck)], "poison"))
        run.until_recovered()
    assert 0 == run.observed.written_again


@pytest.mark.parametrize("kind", LONG)
def test_disk_lost(arena, kind):
    """State comes back from its changelog; it takes a little longer than a restart."""
    with arena.run("disk_lost", kind) as run:
        run.strike("a")
        run.workers["a"].kill()
        run.workers["a"].lose_disk()
        run.workers["a"].start()
        run.until_recovered()


@pytest.mark.parametrize("kind", LONG)
def test_deploy(arena, kind):
    """Each worker hands over what it has finished; its partitions wait for its return, and for nobody else."""
    with arena.run("deploy", kind) as run:
        run.strike("a", "b")
        for worker in run.workers.values():
            worker.send(signal.SIGTERM)
            assert 0 == worker.exit_status()
            worker.start()
            run.until_recovered()


@pytest.mark.parametrize("kind", LONG)
def test_scaling(arena, kind):
    """Partitions that move are drained first; those that stay wait for the group."""
    with arena.run("scaling", kind) as run:
        run.strike("a", "b")
        third = run.stage.worker("c", delivery__session_timeout_s=SESSION_S).start()
        run.until_as_before()
        third.send(signal.SIGTERM)
        assert 0 == third.exit_status()
        run.stage.workers.remove(third)
        run.until_as_before()

from __future__ import annotations

import hashlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.api.bucket import Buckets, TokenBucket
from pipeline.api.idempotency import OVERHEAD_BYTES, IdempotencyKeys, KeyInUseError, KeyReusedError
from pipeline.api.tokens import Tokens, User
from pipeline.config import Api, ApiUser, Settings, load
from pipeline.errors import ConfigurationError

TOKEN = "token-of-sixteen-characters"


class Clock:
    """Time as an argument."""

    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.mark.parametrize(("rate", "burst", "per_s"), [("guest", 5, 1), ("member", 30, 5), ("vip", 100, 20)])
def test_each_class_has_its_burst_and_then_its_pace(rate, burst, per_s):
    """These are the promises of the documentation."""
    clock = Clock()
    buckets = Buckets(Api().classes, clock)
    user = User("anna", rate)
    assert burst == buckets.burst(user)
    assert [0.0] * burst == [buckets.take(user, 1) for _ in range(burst)]
    assert pytest.approx(1 / per_s) == buckets.take(user, 1)
    clock.now_s += 1
    assert [0.0] * per_s == [buckets.take(user, 1) for _ in range(per_s)]
    assert 0 < buckets.take(user, 1)
    clock.now_s += 1e9
    assert [0.0] * burst == [buckets.take(user, 1) for _ in range(burst)]
    assert 0 < buckets.take(user, 1)


def test_users_do_not_share_a_bucket():
    """One that asks too much must not cost another its turn."""
    buckets = Buckets(Api().classes, Clock())
    assert 0.0 == buckets.take(User("anna", "guest"), 5)
    assert 0.0 == buckets.take(User("berta", "guest"), 5)
    assert 0 < buckets.take(User("anna", "guest"), 1)


def test_a_refusal_takes_nothing():
    """Whoever asks for less than is left gets it."""
    bucket = TokenBucket(5, 1, 0.0)
    assert 0.0 == bucket.take(3, 0.0)
    assert 1.0 == bucket.take(3, 0.0)
    assert 0.0 == bucket.take(2, 0.0)


STEPS = st.lists(st.tuples(st.integers(1, 5), st.floats(0, 10)), max_size=50)


@given(st.integers(1, 100), st.floats(0.01, 100), STEPS)
def test_no_more_than_burst_and_pace_ever_pass_and_the_wait_that_is_told_is_enough(burst, per_s, steps):
    """A client that waits as long as it is told must not be refused again."""
    bucket, now_s, passed = TokenBucket(burst, per_s, 0.0), 0.0, 0
    for wanted, pause_s in steps:
        count = min(wanted, burst)
        now_s += pause_s
        wait_s = bucket.take(count, now_s)
        if wait_s:
            now_s += max(1, math.ceil(wait_s))
            assert 0.0 == bucket.take(count, now_s)
        passed += count
        assert passed <= burst + per_s * now_s + 1e-6 * len(steps)


def test_a_clock_that_stands_or_goes_back_gives_nothing():
    """Nor does it take."""
    bucket = TokenBucket(1, 1, 10.0)
    assert 0.0 == bucket.take(1, 10.0)
    assert 1.0 == bucket.take(1, 5.0)
    assert 0.0 == bucket.take(1, 11.0)


def tokens(environ=None, **users):
    """Configured users: name → references."""
    return Tokens({name: ApiUser(rate="member", tokens=refs) for name, refs in users.items()}, environ or {})


def test_a_token_is_found_wherever_its_reference_leads(tmp_path):
    """In a file, in the environment, or as a hash."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}-1\n")
    digest = hashlib.sha256(f"{TOKEN}-3".encode()).hexdigest()
    known = tokens({"ANNA": f"{TOKEN}-2"}, anna=[f"file:{file}", "env:ANNA"], berta=[f"sha256:{digest}"])
    for number, name in ((1, "anna"), (2, "anna"), (3, "berta")):
        assert User(name, "member") == known.user(f"Bearer {TOKEN}-{number}")
    assert TOKEN not in repr(vars(known))


@pytest.mark.parametrize(
    "header", [None, "", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer ", f"Bearer {TOKEN}x", "Bearer \udcff", "Bearer ä"]
)
def test_anything_else_is_nobody(header):
    """Headers are whatever somebody sends."""
    assert tokens({"ANNA": TOKEN}, anna=["env:ANNA"]).user(header) is None


def test_the_scheme_has_no_case():
    """RFC 9110 11.1."""
    assert tokens({"ANNA": TOKEN}, anna=["env:ANNA"]).user(f"bearer {TOKEN}")


@pytest.mark.parametrize("reference", ["env:NOWHERE", "env:SHORT", "file:/nowhere"])
def test_a_reference_that_leads_nowhere_is_told_at_the_start(reference):
    """Later it would look like a wrong token."""
    with pytest.raises(ConfigurationError, match=r"api\.users\.anna\.tokens: (env|file):") as told:
        tokens({"SHORT": "fifteen-letters"}, anna=[reference])
    assert "fifteen" not in str(told.value)


def test_two_users_with_one_token_are_refused():
    """Nobody could tell them apart."""
    with pytest.raises(ConfigurationError, match="anna has the same token"):
        tokens({"A": TOKEN}, anna=["env:A"], berta=["env:A"])


def test_a_token_in_the_configuration_itself_is_refused_and_not_repeated():
    """Configuration is printed, copied and committed."""
    with pytest.raises(ConfigurationError, match="not env:NAME, file:PATH or sha256:") as told:
        load(None, {"HEADRACE_API__USERS": f'{{ anna = {{ tokens = ["{TOKEN}"] }} }}', "HEADRACE_CONFIG": ""})
    assert TOKEN not in str(told.value)


def test_a_class_that_there_is_not_is_refused():
    """With those that there are."""
    users = '{ anna = { rate = "gold", tokens = ["env:A"] } }'
    with pytest.raises(ConfigurationError, match=r"no class 'gold'; there are guest, member, vip"):
        load(None, {"HEADRACE_API__USERS": users, "HEADRACE_CONFIG": ""})
    assert 5 == Settings().api.classes["guest"].burst


class Keys:
    """Remembered keys and their clock."""

    def __init__(self, max_bytes=10_000):
        self.clock = Clock()
        self.keys = IdempotencyKeys(max_bytes, 60.0, self.clock)

    def ask(self, key, body=b"body", answer=b"answer", user="anna"):
        """Carry a request out, or return the remembered answer."""
        with self.keys.use(user, key, body) as use:
            if use.answer is not None:
                return "again", use.answer
            use.answer = answer
        return "first", answer


def test_the_same_key_and_body_have_the_same_answer():
    """A client that heard nothing repeats its request."""
    keys = Keys()
    assert ("first", b"one") == keys.ask("k", answer=b"one")
    assert ("again", b"one") == keys.ask("k", answer=b"two")
    assert ("first", b"two") == keys.ask("k", answer=b"two", user="berta")


def test_a_key_with_another_body_is_refused():
    """It is a mistake of the client, of which no guess would be right."""
    keys = Keys()
    keys.ask("k")
    with pytest.raises(KeyReusedError):
        keys.ask("k", body=b"other")


def test_a_key_that_is_under_way_is_refused():
    """Two at once would both be carried out."""
    keys = Keys()
    with keys.keys.use("anna", "k", b"body"), pytest.raises(KeyInUseError):
        keys.ask("k")
    assert ("first", b"answer") == keys.ask("k")


def test_a_failure_is_not_remembered():
    """The next try may succeed."""
    keys = Keys()
    with pytest.raises(RuntimeError), keys.keys.use("anna", "k", b"body"):
        raise RuntimeError
    assert "first" == keys.ask("k")[0]


def test_keys_are_forgotten_after_their_time():
    """And not before."""
    keys = Keys()
    keys.ask("k")
    keys.clock.now_s += 59.9
    assert "again" == keys.ask("k")[0]
    keys.clock.now_s += 0.1
    assert "first" == keys.ask("k", body=b"other")[0]


def test_memory_is_bounded_and_the_oldest_go_first():
    """A client may send a new key with every request."""
    keys = Keys(max_bytes=10 * (OVERHEAD_BYTES + 10))
    for number in range(1_000):
        keys.ask(f"{number:04}", answer=b"answer")
    assert 10 == len(keys.keys._users["anna"])
    assert "again" == keys.ask("0999")[0]
    assert "first" == keys.ask("0989")[0]
    assert "first" == keys.ask("large", answer=b"x" * 10_000)[0]
    assert "first" == keys.ask("large", answer=b"x" * 10_000)[0]
    assert 0 == keys.keys._bytes["anna"]


def test_a_request_without_a_key_is_not_remembered():
    """It costs nothing."""
    keys = Keys()
    assert ["first", "first"] == [keys.ask(None)[0] for _ in range(2)]
    assert {} == keys.keys._users

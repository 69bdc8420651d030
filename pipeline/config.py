"""Configuration: one typed model, from `headrace.toml` and `HEADRACE_*`; every value knows where it came from."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from pipeline.errors import ConfigurationError

ENV_PREFIX = "HEADRACE_"
SECTION_SEPARATOR = "__"
DEFAULT_FILE = "headrace.toml"


_TOKEN_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+|sha256:[0-9a-f]{64}")


def _token_reference(text: str) -> str:
    if not _TOKEN_REFERENCE.fullmatch(text):
        # What stands there may be a token: it is not repeated.
        raise ValueError("not env:NAME, file:PATH or sha256: with 64 hexadecimal digits")
    return text


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Broker(Section):
    """The Kafka cluster. Without `bootstrap` commands use the local stack."""

    bootstrap: str | None = Field(None, description="host:port,host:port of a cluster; none: the local stack")
    options: dict[str, str] = Field(
        default_factory=dict,
        description="librdkafka options passed to every client, security.* and sasl.* above all",
    )
    password: SecretStr | None = Field(None, description="value of sasl.password; better by environment than by file")
    wait_s: float = Field(10.0, gt=0, description="how long a command waits for the broker before it gives up")


class Registry(Section):
    """The schema registry and the lock file of its ids."""

    url: str | None = Field(None, description="base URL of a Confluent-compatible API; none: the built-in lock is used")
    lock: Path | None = Field(None, description="lock file written by `headrace schemas register`")


class Topics(Section):
    """How topics are laid out. The partition count is fixed for a cluster's life."""

    partitions: int = Field(6, ge=1, le=1024, description="partitions of every topic")
    replication: int = Field(1, ge=1, description="replication factor")


class Delivery(Section):
    """The exactly-once core."""

    commit_interval_s: float = Field(0.5, gt=0, description="longest time between commits of a stage under load")
    commit_bytes: int = Field(8 << 20, gt=0, description="output bytes that make a commit due at once")
    commit_records: int = Field(10_000, gt=0, description="records that make a commit due at once")
    revoke_grace_s: float = Field(1.0, ge=0, description="how long work may go on after partitions are called back")
    session_timeout_s: float = Field(10.0, ge=1, description="a member that is silent for so long loses its partitions")
    heartbeat_s: float = Field(1.0, gt=0, description="pause between heartbeats")
    transaction_timeout_s: float = Field(10.0, ge=1, description="the broker ends a transaction that is older")
    shutdown_s: float = Field(10.0, gt=0, description="a shutdown that takes longer is ended by the watchdog")
    stable_offsets_s: float = Field(60.0, gt=0, description="how long unstable offsets of the group are waited for")
    stall_s: float = Field(60.0, gt=0, description="a standstill as long turns /healthz red, twice as long ends it")
    handler_s: float = Field(300.0, gt=0, description="a record that takes a parallel stage longer is a dead letter")
    queue_records: int = Field(2_000, gt=0, description="records waiting for each partition before it is held back")
    breaker_share: float = Field(0.2, gt=0, le=1, description="share of dead letters that stops a partition")
    breaker_records: int = Field(200, gt=0, description="records after which the share is looked at")


class Politeness(Section):
    """What every site is granted."""

    delay_s: float = Field(1.0, ge=0, description="pause between requests to one registrable domain")
    backoff_s: float = Field(
        60.0, gt=0, description="first pause after trouble without a Retry-After; doubles, up to a day"
    )
    response_factor: float = Field(
        1.0, ge=0, description="the pause is at least so many times the site's response time, unless delay_s is 0"
    )


class Frontier(Section):
    """What to fetch, when, and why not."""

    commit_interval_s: float = Field(0.1, gt=0, description="longest time between commits under load")
    window_s: float = Field(2.0, gt=0, description="tasks given out per domain: what it can do in this time")
    window_max: int = Field(256, ge=1, description="most tasks given out per domain, whatever its pace")
    retry_pauses_s: list[float] = Field([1.0, 3.0, 9.0], description="pauses after failed attempts")
    max_attempts: int = Field(3, ge=1, description="attempts before a task becomes a dead letter")
    max_age_s: float = Field(604_800, gt=0, description="a task that is older becomes a dead letter")
    max_depth: int | None = Field(
        None, ge=0, description="links followed from a start point, for crawls that say nothing"
    )
    max_pages: int | None = Field(None, ge=1, description="pages of a crawl, for crawls that say nothing")
    max_pages_per_day: int | None = Field(None, ge=1, description="the same per UTC day")
    max_bytes: int | None = Field(
        None, ge=1, description="body bytes of a crawl, as received, for crawls that say nothing"
    )
    max_pages_per_domain: int | None = Field(None, ge=1, description="pages per domain, for crawls that say nothing")
    max_pages_per_domain_per_day: int | None = Field(None, ge=1, description="the same per UTC day")
    max_bytes_per_domain: int | None = Field(
        None, ge=1, description="body bytes per domain, as received, for crawls that say nothing"
    )
    max_path_segments: int = Field(32, ge=1, description="links to deeper paths are refused")
    max_parameters: int = Field(32, ge=1, description="links with more fields in their query are refused")
    max_queries_per_path: int = Field(
        2_000, ge=1, description="links with more different queries of several fields for a path are refused"
    )
    max_values_per_path: int = Field(
        1_000_000, ge=1, description="the same for queries of a single field, which name pages: `item?id=7`"
    )
    calendar_past_years: int = Field(60, ge=0, description="what is named a calendar is not followed further back")
    calendar_future_years: int = Field(2, ge=0, description="views of dates are not followed further ahead")
    max_url_bytes: int = Field(2_048, ge=64, description="longer URLs are refused")
    seen_horizon_s: float = Field(
        7_776_000.0,
        ge=0,
        allow_inf_nan=False,
        description="a URL that ended longer ago is new again when it is found, to the day; 0: never",
    )
    interval_floor_s: float = Field(
        10.0, ge=1, description="recurring work is polled no more often, unless it was wished so"
    )
    interval_span: float = Field(
        16.0, ge=1, le=1_000, description="intervals become so many times longer or shorter than wished; 1: they stay"
    )
    trust_validators_s: float = Field(
        86_400.0,
        ge=0,
        description="a polled page that was last brought longer ago is asked for without validators; 0: never",
    )
    lease_s: float = Field(120.0, gt=0, description="a task that is out for so long is looked after")


class ToldLimit(Section):
    """A page that says "too many requests" or "prove that you are human", whatever its status; all given must hold."""

    sources: str = Field("", description="pattern of source names, such as `news.*`; empty: any")
    urls: str = Field("", description="glob over canonical URLs; empty: any")
    statuses: list[int] = Field([200], min_length=1, description="any of these")
    headers: dict[str, str] = Field(default_factory=dict, description="text that the field of this name holds")
    contains: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list, description="any of these texts stands in the page"
    )
    pattern: str = Field("", description="RE2 expression that is found in the page; empty: none")
    within_bytes: int = Field(16 << 10, ge=1, le=256 << 10, description="how much of the page is looked at")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.headers or self.contains or self.pattern):
            raise ValueError("one of headers, contains and pattern is needed: without, every page would be a refusal")
        return self


class Fetch(Section):
    """HTTP."""

    user_agent: str = Field(
        "headrace/0.1", min_length=1, description="User-Agent header; its first token is the robots.txt agent"
    )
    concurrency: int = Field(192, ge=3, description="requests in flight per worker")
    urgent_share: float = Field(0.25, gt=0, lt=1, description="share of them kept for the urgent lane")
    per_domain: int = Field(8, ge=1, description="requests in flight per domain where its delay is 0")
    per_address: int = Field(64, ge=1, description="requests in flight per resolved address, of whatever domains")
    address_interval_s: float = Field(
        0.0, ge=0, description="time between the starts of two requests to one resolved address"
    )
    max_wait_s: float = Field(10.0, gt=0, description="a task that can't start within it goes back as deferred")
    connect_s: float = Field(10.0, gt=0, description="time for a connection")
    idle_s: float = Field(15.0, gt=0, description="time without a byte")
    total_s: float = Field(60.0, gt=0, description="time for a fetch in all")
    min_bytes_per_s: float = Field(100.0, ge=0, description="a body that comes more slowly is given up; 0: no minimum")
    min_rate_window_s: float = Field(20.0, gt=0, description="time over which that is taken, again and again")
    max_wire_bytes: int = Field(16 << 20, gt=0, description="body bytes as received")
    max_decoded_bytes: int = Field(64 << 20, gt=0, description="body bytes after decoding")
    max_ratio: float = Field(200.0, gt=1, description="decoded to received bytes, past the first MiB")
    max_inline_bytes: int = Field(768 << 10, gt=0, description="packed body bytes that travel in a record")
    max_redirects: int = Field(10, ge=0, description="redirects followed over the whole chain")
    max_refresh_s: float = Field(
        5.0, ge=0, description="a page that leads to another one by itself (Refresh) within this time is a redirect"
    )
    told_limits: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")], ToldLimit] = Field(
        default_factory=lambda: {
            "cloudflare": ToldLimit(statuses=[200, 403, 503], headers={"cf-mitigated": "challenge"}),
        },
        description="answers that are refusals in disguise, by name; treated as 429",
    )
    allow_addresses: list[str] = Field(
        default_factory=list, description="networks reached although they are private: CIDR, or CIDR:port"
    )
    resolve: dict[str, str] = Field(
        default_factory=dict, description="fixed addresses by host pattern, such as *.demo.test"
    )
    robots: bool = Field(True, description="obey robots.txt")


class Parse(Section):
    """Bytes to documents."""

    processes: int = Field(1, ge=1, description="worker processes")
    time_limit_s: float = Field(10.0, gt=0, description="for one page")
    memory_limit_bytes: int = Field(
        1 << 30, ge=128 << 20, description="address space of a worker process beyond its start"
    )
    recycle_pages: int = Field(20_000, ge=1, description="pages after which a worker process is replaced")


class Store(Section):
    """Files."""

    directory: Path = Field(Path("out"), description="where finished files are")
    segment_documents: int = Field(1_000, ge=1, description="documents that close a file")
    segment_s: float = Field(5.0, gt=0, description="age that closes a file")


class Worker(Section):
    """One worker process."""

    name: str = Field(
        "0", pattern=r"^[A-Za-z0-9._-]{1,64}$", description="stable name; with the stage it is the transactional id"
    )
    data_dir: Path = Field(Path(".headrace"), description="state of workers and the local stack; can be lost")
    metrics_port: int = Field(0, ge=0, le=65535, description="Prometheus and /healthz; 0 takes a free port")
    metrics_host: str = Field("127.0.0.1", description="address the metrics listen on")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least important message logged"
    )


class Tasks(Section):
    """Tasks that people and programs submit, by file or by the API."""

    max_file_bytes: int = Field(16 << 20, gt=0, description="largest file of tasks; takes some 50 times its memory")
    min_interval_s: float = Field(1.0, ge=0.1, description="shortest pause between polls that a task may ask for")


class RateClass(Section):
    """What a user of the API may do: a token bucket."""

    burst: int = Field(ge=1, le=100_000, description="requests, or tasks of one request, that may come at once")
    per_s: float = Field(gt=0, le=100_000, allow_inf_nan=False, description="how many more may come every second")


class ApiUser(Section):
    """Somebody who may use the API. A token stands here by reference, never itself."""

    rate: str = Field("guest", description="name of a class")
    tokens: list[Annotated[str, AfterValidator(_token_reference)]] = Field(
        min_length=1, description="each env:NAME, file:PATH or sha256:HEX; two while one replaces the other"
    )


class Api(Section):
    """The HTTP API of tasks."""

    host: str = Field("127.0.0.1", description="address to listen on; TLS is for a proxy before it")
    port: int = Field(8470, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    users: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")], ApiUser] = Field(
        default_factory=dict, description="by name: `rate`, the class, and `tokens`, references to its tokens"
    )
    classes: dict[str, RateClass] = Field(
        default_factory=lambda: {
            "guest": RateClass(burst=5, per_s=1),
            "member": RateClass(burst=30, per_s=5),
            "vip": RateClass(burst=100, per_s=20),
        },
        description="by name: `burst`, what may come at once, and `per_s`, how many more every second",
    )
    max_body_bytes: int = Field(1 << 20, gt=0, description="largest body of a request")
    request_s: float = Field(15.0, gt=0, description="time for a request, from its head to the answer")
    max_requests: int = Field(256, ge=1, description="requests under way at once, a quarter of them per user")
    idempotency_s: float = Field(86_400.0, gt=0, description="how long an Idempotency-Key is remembered")
    idempotency_bytes: int = Field(1 << 20, gt=0, description="memory for the remembered keys and answers of a user")

    @model_validator(mode="after")
    def _classes_are_known(self) -> Self:
        for name, user in self.users.items():
            if user.rate not in self.classes:
                raise ValueError(f"users.{name}.rate: no class {user.rate!r}; there are {', '.join(self.classes)}")
        return self


class Settings(Section):
    """Everything."""

    broker: Broker = Broker()
    registry: Registry = Registry()
    topics: Topics = Topics()
    delivery: Delivery = Delivery()
    politeness: Politeness = Politeness()
    frontier: Frontier = Frontier()
    fetch: Fetch = Fetch()
    parse: Parse = Parse()
    store: Store = Store()
    worker: Worker = Worker()
    tasks: Tasks = Tasks()
    api: Api = Api()


class Loaded:
    """Settings and, for each dotted key that was given, where it came from."""

    def __init__(self, settings: Settings, origins: Mapping[str, str]) -> None:
        self.settings = settings
        self.origins = dict(origins)


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Loaded:
    """Read the configuration.

    Args:
        file: TOML file; None takes `HEADRACE_CONFIG` or `headrace.toml` where there is one.
        environ: the environment; None takes the process's own. `HEADRACE_FETCH__TOTAL_S=30` sets `fetch.total_s`;
            lists and tables are written as TOML values.

    Raises:
        ConfigurationError: names the key, the place and, for an unknown key, the nearest right one.
    """
    env = os.environ if environ is None else environ
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    path = file or (Path(env["HEADRACE_CONFIG"]) if env.get("HEADRACE_CONFIG") else Path(DEFAULT_FILE))
    if path.exists():
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
            raise ConfigurationError(f"{path}: {exc}") from exc
        for section, values in tree.items():
            for key in values if isinstance(values, dict) else ():
                origins[f"{section}.{key}"] = str(path)
    elif file is not None or env.get("HEADRACE_CONFIG"):
        raise ConfigurationError(f"{path}: no such file")
    for name, text in sorted(env.items()):
        if not name.startswith(ENV_PREFIX) or name == "HEADRACE_CONFIG":
            continue
        section, _, key = name[len(ENV_PREFIX) :].lower().partition(SECTION_SEPARATOR)
        dotted = f"{section}.{key}" if key else section
        _check_known(dotted, name)
        tree.setdefault(section, {})[key] = _toml_value(text)
        origins[dotted] = name
    return Loaded(_validate(tree, origins), origins)


def _toml_value(text: str) -> Any:
    """A list or table is read as TOML; everything else stays the text pydantic converts."""
    if text[:1] in "[{":
        try:
            return tomllib.loads(f"v = {text}")["v"]
        except tomllib.TOMLDecodeError:
            return text
    return text


def known_keys() -> list[str]:
    """All dotted keys, in the order of the model."""
    return [
        f"{section}.{key}"
        for section, info in Settings.model_fields.items()
        for key in _section_type(info.annotation).model_fields
    ]


def _section_type(annotation: Any) -> type[Section]:
    if not (isinstance(annotation, type) and issubclass(annotation, Section)):
        raise TypeError(f"not a section: {annotation!r}")
    return annotation


def _check_known(dotted: str, place: str) -> None:
    keys = known_keys()
    if dotted in keys:
        return
    near = difflib.get_close_matches(dotted, keys, n=1, cutoff=0.0)
    raise ConfigurationError(f"{place}: unknown key {dotted!r}; the nearest is {near[0]!r}")


def _validate(tree: dict[str, Any], origins: Mapping[str, str]) -> Settings:
    try:
        return Settings.model_validate(tree)
    except ValidationError as exc:
        lines = []
        for error in exc.errors():
            dotted = ".".join(str(part) for part in error["loc"][:2])
            place = origins.get(dotted, DEFAULT_FILE)
            if error["type"] == "extra_forbidden":
                near = difflib.get_close_matches(dotted, known_keys(), n=1, cutoff=0.0)
                lines.append(f"{place}: unknown key {dotted!r}; the nearest is {near[0]!r}")
            else:
                lines.append(f"{place}: {'.'.join(map(str, error['loc']))}: {error['msg']}")
        raise ConfigurationError("\n".join(lines)) from exc


def client_options(broker: Broker) -> dict[str, str]:
    """Options every confluent-kafka client starts from: the address and what the operator passes through.

    Raises:
        ConfigurationError: no `broker.bootstrap`.
    """
    if not broker.bootstrap:
        raise ConfigurationError(
            "broker.bootstrap is not set: name a cluster, or start the local stack with `headrace up`"
        )
    secret = {"sasl.password": broker.password.get_secret_value()} if broker.password else {}
    return {"bootstrap.servers": broker.bootstrap, **broker.options, **secret}

from __future__ import annotations

import base64
import json

import httpx
import pytest

from pipeline.contracts.lock import read_lock
from pipeline.contracts.registration import register_schemas, registry_differences
from pipeline.contracts.registry import SchemaRegistry
from pipeline.contracts.schemas import read_schemas
from pipeline.errors import BrokerError, ConfigurationError
from pipeline.topics import LANE_BULK, LANE_NORMAL, TASKS

URL = "http://registry.test/base"
SCHEMAS = read_schemas()


def answering(handler):
    """A client of a registry that answers by a function of the request."""
    return SchemaRegistry(URL, transport=httpx.MockTransport(handler))


def saying(status, body, **headers):
    """A client of a registry that always says the same."""
    content = body if isinstance(body, str) else json.dumps(body)
    return answering(lambda _: httpx.Response(status, text=content, headers=headers))


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("Connection refused"),
        httpx.ReadTimeout("timed out"),
        httpx.RemoteProtocolError("Server disconnected"),
    ],
)
def test_a_registry_that_is_away_is_the_cluster_s_fault(failure):
    """Nothing is wrong with the schemas: the same command works later."""

    def fail(_request):
        raise failure

    with answering(fail) as registry, pytest.raises(BrokerError, match=f"{URL}: {failure}; is it running"):
        registry.versions("a-value")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_registry_that_fails_is_the_cluster_s_fault(status):
    """Its own words are shown."""
    with saying(status, "out of order") as registry, pytest.raises(BrokerError, match=f"{status}: out of order"):
        registry.register("a-value", "{}")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (409, {"error_code": 409, "message": "reader type"}, "refused as incompatible: .*reader type"),
        (422, {"error_code": 42201, "message": "Invalid schema"}, "status 422: .*Invalid schema"),
        (401, {"error_code": 401, "message": "Unauthorized"}, "status 401: .*Unauthorized"),
        (403, "<html>no</html>", "status 403: <html>no</html>"),
        (404, {"status": 404}, "registry.url is not the base of a Confluent-compatible API"),
        (404, "<html>", "registry.url is not the base of a Confluent-compatible API"),
        (200, "<html>Welcome</html>", "registry.url is not the base of a Confluent-compatible API"),
    ],
)
def test_a_registry_that_refuses_needs_the_operator(status, body, said):
    """Trying again would not help: what must change is in the message."""
    with saying(status, body) as registry, pytest.raises(ConfigurationError, match=rf"POST .*versions: {said}"):
        registry.register("a-value", "{}")


@pytest.mark.parametrize("url", ["registry:8081", "ftp://registry", "http://", "http://registry:x", ""])
def test_an_address_that_is_none_names_its_key(url):
    """The usual slip is the missing scheme."""
    with pytest.raises(ConfigurationError, match=r"registry\.url: "):
        SchemaRegistry(url)


def test_a_host_name_that_no_resolver_takes_names_the_key():
    """It fails in the resolver, not as an HTTP error."""
    with SchemaRegistry("http://..") as registry, pytest.raises(ConfigurationError, match=r"registry\.url: no host"):
        registry.versions("a-value")


def test_a_password_is_sent_and_never_shown():
    """It stands in the address; messages and the lock end up in logs and repositories."""
    seen = []

    def refuse(request):
        seen.append(request.headers["authorization"])
        return httpx.Response(503, text="no")

    registry = SchemaRegistry("http://me:hunter2@registry.test", transport=httpx.MockTransport(refuse))
    with pytest.raises(BrokerError) as caught:
        registry.versions("a-value")

    assert [f"Basic {base64.b64encode(b'me:hunter2').decode()}"] == seen
    assert "hunter2" not in str(caught.value)
    assert "http://registry.test" == registry.label


@pytest.mark.parametrize("code", [40401, 40402])
def test_a_subject_that_is_not_there_has_no_versions(code):
    """A new registry is no fault."""
    with saying(404, {"error_code": code, "message": "not found"}) as registry:
        assert () == registry.versions("a-value")


def test_a_subject_without_a_level_of_its_own_has_none():
    """Then the registry's default counts, which is weaker than ours."""
    with saying(404, {"error_code": 40408, "message": "not found"}) as registry:
        assert registry.compatibility("a-value") is None


@pytest.mark.parametrize("body", [{"version": 1}, [], {"id": "x", "version": 1, "schema": "{}"}])
def test_an_answer_without_a_schema_is_the_registry_s_fault(body):
    """Guessing an id would put it on every record."""

    def answer(request):
        return httpx.Response(200, json=[1] if request.url.path.endswith("versions") else body)

    with answering(answer) as registry, pytest.raises(BrokerError, match="has no schema in it"):
        registry.versions("a-value")


@pytest.mark.parametrize("body", [{}, [], {"id": "7"}])
def test_an_answer_without_an_id_is_the_registry_s_fault(body):
    """The same."""
    with saying(200, body) as registry, pytest.raises(BrokerError, match="has no id"):
        registry.register("a-value", "{}")


def test_a_schema_that_is_no_avro_is_none_of_ours():
    """Somebody may keep Protobuf under our name: it must be told, not parsed."""

    def answer(request):
        if request.url.path.startswith("/base/config"):
            return httpx.Response(200, json={"compatibilityLevel": "FULL_TRANSITIVE"})
        if request.url.path.endswith("versions"):
            return httpx.Response(200, json=[1])
        return httpx.Response(200, json={"version": 1, "id": 5, "schemaType": "PROTOBUF", "schema": "syntax;"})

    with answering(answer) as registry:
        found = list(registry_differences(registry, SCHEMAS, read_lock(), [TASKS]))

    assert [
        "crawl.tasks.v1-value: v1 is not in the registry",
        "crawl.tasks.v1-value: the registry's version 1 (id 5) is none of ours",
    ] == found


def test_a_registry_that_gives_one_schema_two_ids_is_refused():
    """A record is written with one id, whichever topic it goes to."""
    ids = iter((7, 8))

    def answer(request):
        if request.method == "POST":
            return httpx.Response(200, json={"id": next(ids)})
        return httpx.Response(200, json={}) if request.method == "PUT" else httpx.Response(200, json=[])

    with answering(answer) as registry, pytest.raises(ConfigurationError, match=r"id 7 under .* and 8 under"):
        register_schemas(registry, SCHEMAS["crawl.frontier.v1-value"], topics=[LANE_NORMAL, LANE_BULK])

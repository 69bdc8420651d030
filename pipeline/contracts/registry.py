"""Client of a schema registry with the Confluent API, as far as contracts need it.

Used when schemas are registered or compared, never by a worker. Written on httpx, which is there anyway:
confluent-kafka's client brings five more packages, retries and caches by its own rules, and hides the answer that the
operator must see.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import quote

import httpx

from pipeline.errors import BrokerError, ConfigurationError

FULL_TRANSITIVE = "FULL_TRANSITIVE"
TIMEOUT_S = 10.0

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
# Error codes of the Confluent API: subject not found, version not found, no compatibility level of its own.
_NOT_THERE = frozenset({40401, 40402, 40408})
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a registry's subject.

    Attributes:
        version: the registry's number, which need not be ours.
        id: the id on the wire.
        document: the schema as JSON; None where it is no Avro.
    """

    version: int
    id: int
    document: Any


class SchemaRegistry:
    """A registry; to be closed, or used as a context manager.

    Args:
        url: base of the API, with user and password where it wants them; Apicurio's ends in /apis/ccompat/v7.
        timeout_s: for each call.
        transport: how to send, for tests; None sends by HTTP.

    Every method raises `BrokerError` when the registry is down, too slow or broken (try later), and
    `ConfigurationError` when it refuses (something must be changed); both name the address, without its password.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S, transport: httpx.BaseTransport | None = None) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as exc:
            raise ConfigurationError(f"registry.url: {exc}") from exc
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise ConfigurationError("registry.url: must be http://host:port or https://host:port, and a path")
        self.label = str(parsed.copy_with(username=None, password=None))
        self._client = httpx.Client(
            base_url=parsed, timeout=timeout_s, transport=transport, headers={"Accept": f"{_CONTENT_TYPE}, */*"}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return all versions of a subject, in the registry's order; empty where it doesn't know the subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        numbers = self._call("GET", path)
        return tuple(self._version(f"{path}/{number}") for number in numbers or ())

    def _version(self, path: str) -> RegisteredSchema:
        answer = self._call("GET", path) or {}
        try:
            document = json.loads(answer["schema"]) if answer.get("schemaType", "AVRO") == "AVRO" else None
            return RegisteredSchema(int(answer["version"]), int(answer["id"]), document)
        except (KeyError, TypeError, ValueError) as exc:
            raise BrokerError(f"registry {self.label}: {path} has no schema in it: {exc!r}") from exc

    def register(self, subject: str, schema: str) -> int:
        """Add a version to a subject.

        Args:
            subject: the registry's name for it.
            schema: the Avro schema as JSON text.

        Returns:
            The id on the wire; that of the existing version where the registry has the schema already.

        Raises:
            ConfigurationError: also when the schema is incompatible with the versions that are there.
        """
        answer = self._call("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            raise BrokerError(f"registry {self.label}: registered {subject}, but the answer has no id: {answer!r}")
        return int(answer["id"])

    def compatibility(self, subject: str) -> str | None:
        """Return the compatibility level of a subject, None where it has none of its own."""
        answer = self._call("GET", f"/config/{quote(subject, safe='')}")
        return str(answer.get("compatibilityLevel")) if isinstance(answer, dict) else None

    def set_compatibility(self, subject: str, level: str = FULL_TRANSITIVE) -> None:
        """Set the compatibility level of a subject, which need not have a version yet."""
        self._call("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": level})

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """Return the JSON of the answer; None where the registry says that the thing asked for is not there."""
        content = None if body is None else json.dumps(body)
        try:
            # The base URL may have a path: a relative one is put behind it.
            response = self._client.request(
                method, path.lstrip("/"), content=content, headers={"Content-Type": _CONTENT_TYPE}
            )
        except UnicodeError as exc:
            # How the resolver refuses a name with an empty or overlong part.
            raise ConfigurationError(f"registry.url: no host name in {self.label}") from exc
        except httpx.HTTPError as exc:
            raise BrokerError(
                f"registry {self.label}: {exc or type(exc).__name__}; is it running, and is registry.url right?"
            ) from exc
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.is_success and answer is not None:
            return answer
        code = answer.get("error_code") if isinstance(answer, dict) else None
        if response.status_code == httpx.codes.NOT_FOUND and code in _NOT_THERE:
            return None
        raise self._refusal(response, code, f"registry {self.label}: {method} {path}")

    def _refusal(self, response: httpx.Response, code: int | None, call: str) -> BrokerError | ConfigurationError:
        said = f"status {response.status_code}: {response.text[:_SHOWN_CHARACTERS]}"
        if response.is_server_error:
            return BrokerError(f"{call}: {said}")
        if response.status_code == httpx.codes.CONFLICT:
            return ConfigurationError(f"{call}: refused as incompatible: {said}")
        if response.is_success or (response.status_code == httpx.codes.NOT_FOUND and code is None):
            return ConfigurationError(f"{call}: registry.url is not the base of a Confluent-compatible API: {said}")
        return ConfigurationError(f"{call}: {said}")

"""A real schema registry from Python packages alone: Apicurio, with the API that Confluent's clients speak."""

from __future__ import annotations

import http
import http.client

from pipeline.local import archives
from pipeline.local.server import HOST, JavaServer, java

API = "/apis/ccompat/v7"
ANSWER_S = 5.0
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


class LocalRegistry(JavaServer):
    """A registry of one's own. It keeps schemas in memory: after a start it is empty and is filled anew."""

    name = "registry"

    @property
    def url(self) -> str:
        """Base URL for clients; a BrokerError before the first start."""
        return f"http://{self.address}{API}"

    def _prepare(self, ports: list[int]) -> list[str]:
        (port,) = ports
        options = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": str(port),
            # Metrics and health have a port of their own, 9000 by default: any, so that two registries get along.
            "quarkus.management.host": HOST,
            "quarkus.management.port": "0",
            "quarkus.otel.sdk.disabled": "true",
            "quarkus.log.level": "WARN",
        }
        properties = [f"-D{key}={value}" for key, value in options.items()]
        return java(*JVM, *properties, "-jar", str(archives.unpacked("registry") / "quarkus-run.jar"))

    def _is_ready(self, port: int) -> bool:
        connection = http.client.HTTPConnection(HOST, port, timeout=ANSWER_S)
        try:
            connection.request("GET", f"{API}/subjects")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

"""How aiokafka logs in, from what librdkafka is told."""

from __future__ import annotations

import ssl
from typing import Any

import faust

from pipeline.config import Broker
from pipeline.errors import ConfigurationError


def faust_credentials(broker: Broker) -> Any:
    """Translate librdkafka's security options to Faust's, so that both clients log in alike.

    Raises:
        ConfigurationError: an option that aiokafka has no counterpart for.
    """
    options = broker.options
    protocol = options.get("security.protocol", "plaintext").upper()
    if protocol == "PLAINTEXT":
        return None
    context = None
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
        if options.get("ssl.endpoint.identification.algorithm") == "none":
            context.check_hostname = False
        if certificate := options.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, options.get("ssl.key.location"), options.get("ssl.key.password"))
    if protocol == "SSL":
        return faust.SSLCredentials(context=context)
    mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", "PLAIN")).upper()
    if mechanism not in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}:
        raise ConfigurationError(
            f"broker.options: sasl.mechanism {mechanism} is not supported by the consumer's client"
        )
    return faust.SASLCredentials(
        mechanism=mechanism,
        username=options.get("sasl.username"),
        password=broker.password.get_secret_value() if broker.password else options.get("sasl.password"),
        ssl_context=context,
    )

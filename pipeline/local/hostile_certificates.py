"""Certificates of the hostile web: an authority of its own, and what hostile sites show instead of a right one."""

from __future__ import annotations

import datetime as dt
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pipeline.local.hostile_kind import Certificate

AUTHORITY_FILE: Final = "authority.pem"
_DAY: Final = dt.timedelta(days=1)
_CONTEXTS: Final = 512


class Certificates:
    """Makes TLS contexts for hosts.

    Args:
        directory: takes the authority's certificate (`authority.pem`, for those who are to trust it) and a key.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._trusted = ec.generate_private_key(ec.SECP256R1())
        self._stranger = ec.generate_private_key(ec.SECP256R1())
        self._authority = _name("Authority of the hostile web")
        self.authority_file = directory / AUTHORITY_FILE
        authority = self._signed(self._authority, self._trusted, self._trusted, (-_DAY, 365 * _DAY), None)
        self.authority_file.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
        self.context = lru_cache(_CONTEXTS)(self._context)

    def _context(self, host: str, certificate: Certificate) -> ssl.SSLContext:
        """Return the TLS context of a server under this name."""
        name = f"other-{host}" if certificate == "other_name" else host
        times = {"expired": (-9 * _DAY, -2 * _DAY), "not_yet": (2 * _DAY, 9 * _DAY)}.get(certificate, (-_DAY, 9 * _DAY))
        signer = self._stranger if certificate == "unknown_authority" else self._trusted
        leaf = self._signed(_name("a host"), self._key, signer, times, name)
        secret = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._directory / "host.pem"
        file.write_bytes(secret + leaf.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        file.unlink()
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        signer: ec.EllipticCurvePrivateKey,
        times: tuple[dt.timedelta, dt.timedelta],
        host: str | None,
    ) -> x509.Certificate:
        """Return a certificate: of a host, or of the authority where there is none."""
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._authority)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now + times[0]).not_valid_after(now + times[1])
        if host is None:
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return builder.sign(signer, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

"""XML as the web has it, made fit for parsers: UTF-8 by the Encoding Standard's rules, only characters that XML has."""

from __future__ import annotations

import re
from typing import Final

from pipeline.web.content_type import parse_content_type
from pipeline.web.encoding import decide, decode
from pipeline.web.encoding_labels import name_of

UTF8_TYPE: Final = "application/xml; charset=utf-8"

_DECLARATION: Final = re.compile(r"\A\s*<\?xml\b[^>]*\?>")
_CONTROLS: Final = bytes(set(range(0x20)) - set(b"\t\n\r"))
_NOT_CHARACTERS: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
_REFERENCE: Final = re.compile(rb"&#(?:[xX]([0-9A-Fa-f]+)|([0-9]+));?")
_REPLACEMENT: Final = "\ufffd".encode()
_MAX_DIGITS: Final = 8


def utf8(body: bytes, content_type: str = "") -> tuple[bytes, str]:
    """Decode an XML document and encode it anew.

    Args:
        body: unpacked.
        content_type: the header as sent; empty for none. Its charset counts, its type does not: what is called here is
            XML, whatever it was sent as.

    Returns:
        The document in UTF-8 without its XML declaration, and the encoding it was in. What is no character of XML
        (1.0, 2.2), bare or as a reference, is U+FFFD: sites do write such, and a strict parser would stop there.
    """
    name = name_of(parse_content_type(content_type).charset or "")
    encoding = decide(body, f"application/xml; charset={name}" if name else "application/xml")
    text, _ = decode(body, encoding)
    document = _DECLARATION.sub("", text, count=1).encode("utf-8", "replace")
    if len(document.translate(None, _CONTROLS)) != len(document) or b"\xef\xbf\xbe" in document:
        document = _NOT_CHARACTERS.sub(_REPLACEMENT, document)
    if b"&#" in document:
        document = _REFERENCE.sub(_character, document)
    return document, encoding.name


def _character(reference: re.Match[bytes]) -> bytes:
    hexadecimal, decimal = reference.groups()
    digits = (hexadecimal or decimal).lstrip(b"0")
    if len(digits) > _MAX_DIGITS:
        return _REPLACEMENT
    number = int(digits or b"0", 16 if hexadecimal else 10)
    if number in {0x9, 0xA, 0xD} or 0x20 <= number <= 0xD7FF or 0xE000 <= number <= 0xFFFD:
        return reference[0]
    return reference[0] if 0x10000 <= number <= 0x10FFFF else _REPLACEMENT

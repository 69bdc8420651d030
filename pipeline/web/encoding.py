"""Which characters a body's bytes are: the Encoding Standard's names and labels, the HTML Standard's order of evidence.

Order (HTML 13.2.3.2): byte order mark, charset of the Content-Type header, what the document declares, what its bytes
look like, windows-1252. A declared encoding is believed even where it is wrong: browsers do, and sites are made for
them.

Beyond the standards: a `meta` after the first 1024 bytes is found up to 16 KiB (browsers find it while they parse and
start again); an undeclared body that is valid UTF-8 is UTF-8.
"""

from __future__ import annotations

import codecs
import re
from functools import cache
from typing import Final, Literal, NamedTuple

from resiliparse.parse.encoding import detect_encoding

from pipeline.web.content_type import parse_content_type
from pipeline.web.encoding_labels import CODECS, name_of
from pipeline.web.markup import Attributes

PRESCAN_BYTES: Final = 1_024
"""HTML 13.2.3.2: how far a declaration is looked for."""

LATE_META_BYTES: Final = 16_384
DETECTION_BYTES: Final = 4_096

Evidence = Literal["bom", "header", "meta", "late_meta", "xml", "valid_utf8", "detected", "default"]

_DETECTOR_NAMES: Final = {"euc_jp": "EUC-JP", "cp949": "EUC-KR"}
_READ_AS_ASCII: Final = {"UTF-16BE": "UTF-8", "UTF-16LE": "UTF-8", "x-user-defined": "windows-1252"}
_NEVER_DETECTED: Final = frozenset({"replacement", "UTF-16BE", "UTF-16LE", "x-user-defined"})

_BOMS: Final = ((codecs.BOM_UTF8, "UTF-8"), (codecs.BOM_UTF16_BE, "UTF-16BE"), (codecs.BOM_UTF16_LE, "UTF-16LE"))
_UTF16_XML: Final = ((b"<\0?\0x\0", "UTF-16LE"), (b"\0<\0?\0x", "UTF-16BE"))
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")

_TAG: Final = re.compile(
    rb"<(?:(?P<comment>!--)|(?P<meta>meta)(?=[\t\n\f\r /])|(?P<element>/?[A-Za-z])|[!/?])", re.IGNORECASE
)
_TAG_NAME_END: Final = re.compile(rb"[\t\n\f\r >]|(?<=meta)/", re.IGNORECASE)
_CONTENT_CHARSET: Final = re.compile(
    rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*))"
)
_XML_ENCODING: Final = re.compile(rb"<\?xml[^>]*?encoding[\0-\x20]*=[\0-\x20]*([\"'])([^\0-\x20\"'>]*)\1")


class Encoding(NamedTuple):
    """An encoding and why it was chosen.

    Attributes:
        name: as the Encoding Standard writes it, such as `UTF-8` or `windows-1252`.
        evidence: `bom`, `header`, `meta` (first 1024 bytes), `late_meta`, `xml` (its declaration), `valid_utf8`,
            `detected` (by frequencies), `default`.
    """

    name: str
    evidence: Evidence


def decide(body: bytes, content_type: str) -> Encoding:
    """Decide the encoding of a body.

    Args:
        body: decompressed; the end may be missing.
        content_type: value of the Content-Type header, empty where there is none. What is neither XML nor another known
            kind of text is searched for the declarations of HTML.

    Returns:
        Always one of the Encoding Standard's.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return Encoding(name, "bom")
    header = parse_content_type(content_type)
    name_in_header = name_of(header.charset) if header.charset else None
    if name_in_header:
        return Encoding(name_in_header, "header")
    is_xml = header.essence.endswith(("/xml", "+xml"))
    is_other = header.essence.endswith(("/json", "+json")) or header.essence == "text/plain"
    declared = None if is_other else _declared(body, html=not is_xml or header.essence == "application/xhtml+xml")
    return declared or _guess(body, default="UTF-8" if is_xml or is_other else "windows-1252")


def decode(body: bytes, encoding: Encoding) -> tuple[str, int]:
    """Decode a body; what is no character of the encoding becomes U+FFFD.

    Returns:
        The text without byte order mark, and how many U+FFFD it has; in UTF-8 those that the body itself spells out are
        not counted.
    """
    for mark, name in _BOMS:
        if name == encoding.name:
            body = body.removeprefix(mark)
    if encoding.name == "replacement":
        # A security measure of the Standard: in these encodings ASCII bytes may hide markup.
        return ("\ufffd", 1) if body else ("", 0)
    table = _single_byte_table(encoding.name)
    if table is not None:
        text = codecs.charmap_decode(body, "replace", table)[0]
    else:
        text = body.decode(CODECS[encoding.name], "replace")
    replacements = text.count("\ufffd")
    if replacements and encoding.name == "UTF-8":
        replacements -= body.count("\ufffd".encode())
    return text, replacements


@cache
def _single_byte_table(name: str) -> str | None:
    """Return the 256 characters of an encoding whose Python codec differs from the Standard; None for the others."""
    if name == "x-user-defined":
        return "".join(chr(byte if byte < 0x80 else 0xF700 + byte) for byte in range(256))
    if not name.startswith("windows-"):
        return None
    characters = [bytes([byte]).decode(CODECS[name], "replace") for byte in range(256)]
    # Bytes 80 to 9F that Python leaves open are control characters in the Standard.
    return "".join(
        chr(byte) if character == "\ufffd" and 0x80 <= byte <= 0x9F else character
        for byte, character in enumerate(characters)
    )


def _declared(body: bytes, *, html: bool) -> Encoding | None:
    """Find what the document says of itself."""
    for start, name in _UTF16_XML:
        if body.startswith(start):
            return Encoding(name, "xml")
    if html:
        name_in_meta = _prescan(body[:PRESCAN_BYTES])
        if name_in_meta:
            return Encoding(name_in_meta, "meta")
    xml = _XML_ENCODING.match(body[:PRESCAN_BYTES])
    name_in_xml = _in_ascii_markup(xml[2]) if xml else None
    if name_in_xml:
        return Encoding(name_in_xml, "xml")
    if html:
        name_in_meta = _prescan(body[:LATE_META_BYTES])
        if name_in_meta:
            return Encoding(name_in_meta, "late_meta")
    return None


def _guess(body: bytes, *, default: str) -> Encoding:
    """Judge by the bytes alone."""
    first = _NOT_ASCII.search(body)
    if first is None:
        return Encoding(default, "default")
    try:
        codecs.utf_8_decode(body, "strict", False)  # not final: the body may be cut inside a character
    except UnicodeDecodeError:
        pass
    else:
        return Encoding("UTF-8", "valid_utf8")
    # From the first byte that tells something: it also begins a character, whatever the encoding.
    sample = body[first.start() : first.start() + DETECTION_BYTES]
    detected = detect_encoding(sample, html5_compatible=False, from_html_meta=False)
    name = (_DETECTOR_NAMES.get(detected) or name_of(detected)) if detected else None
    if name and name not in _NEVER_DETECTED:
        return Encoding(name, "detected")
    return Encoding(default, "default")


def _prescan(data: bytes) -> str | None:
    """Find the encoding in a `meta` (HTML 13.2.3.2, "prescan a byte stream to determine its encoding")."""
    if b"charset" not in data.lower():
        return None
    position = 0
    while tag := _TAG.search(data, position):
        if tag["meta"] or tag["element"]:
            name_end = _TAG_NAME_END.search(data, tag.end())
            attributes = Attributes(data, name_end.start() if name_end else len(data))
            if not attributes.complete:
                return None
            name = _in_meta(attributes.values) if tag["meta"] else None
            if name:
                return name
            position = attributes.end
        else:
            closing = b"-->" if tag["comment"] else b">"
            end = data.find(closing, tag.start() + len(b"<!"))  # the dashes of a comment may be the same: <!-->
            if end < 0:
                return None
            position = end + len(closing)
    return None


def _in_meta(attributes: dict[bytes, bytes]) -> str | None:
    if b"charset" in attributes:
        return _in_ascii_markup(attributes[b"charset"].lower())
    if attributes.get(b"http-equiv", b"").lower() == b"content-type":
        charset = _CONTENT_CHARSET.search(attributes.get(b"content", b"").lower())
        if charset:
            return _in_ascii_markup(b"".join(filter(None, charset.groups())))
    return None


def _in_ascii_markup(label: bytes) -> str | None:
    """Return the encoding of a label that was read as ASCII, so that it can't be UTF-16 (HTML 13.2.3.2)."""
    name = name_of(label.decode("latin-1"))
    return _READ_AS_ASCII.get(name, name) if name else None

"""The Content-Type header, read as browsers read it (MIME Sniffing Standard, Fetch Standard)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_MIME_ESSENCE: Final = re.compile(
    r"[\t\n\r ]*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t\n\r ]*(?=;|\Z)"
)
_MIME_PARAMETER: Final = re.compile(
    r";[\t\n\r ]*([^;=]*)(?:=(?:\"((?:[^\"\\]|\\.)*)(?:\\?\Z|\"[^;]*)|([^;]*)))?", re.DOTALL
)
_MIME_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]+")
_HEADER_VALUE: Final = re.compile(r"(?:\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|[^,\"])+", re.DOTALL)


class ContentType(NamedTuple):
    """A Content-Type header.

    Attributes:
        essence: type and subtype in lower case, such as `text/html`; empty where the header is none.
        charset: label of the encoding as written; None where there is none.
    """

    essence: str
    charset: str | None


def parse_content_type(header: str) -> ContentType:
    """Read a Content-Type header (Fetch Standard, "extract a MIME type").

    Args:
        header: its value, bytes as Latin-1; several values with commas between count as repeated headers, of which the
            last usable one holds.
    """
    essence, charset = "", None
    for value in _HEADER_VALUE.findall(header):
        match = _MIME_ESSENCE.match(value)
        if match is None or match[1] == "*/*":
            continue
        if match[1].lower() != essence:
            essence, charset = match[1].lower(), None
        charset = _charset_parameter(value, match.end()) or charset
    return ContentType(essence, charset)


def _charset_parameter(value: str, position: int) -> str | None:
    for match in _MIME_PARAMETER.finditer(value, position):
        name, quoted, plain = match.groups()
        if name.lower() != "charset":
            continue
        charset = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else (plain or "").rstrip()
        if _MIME_VALUE.fullmatch(charset):
            return charset
    return None

from __future__ import annotations

import pytest

from pipeline.web.content_type import parse_content_type
from pipeline.web.encoding import decide
from pipeline.web.encoding_labels import CODECS, name_of
from tests.suites.rows import document, suite_rows

NO_MIME_TYPE = "the value has no type and subtype: a whole header line or a bare parameter is none (MIME Sniffing 4.4)"
NOT_CONTENT_TYPE = "only a meta whose http-equiv is exactly Content-Type declares an encoding (HTML 13.2.3.2)"

W3LIB_DEVIATIONS = {
    "w3lib-http_content_type_encoding-0": NO_MIME_TYPE,
    "w3lib-http_content_type_encoding-7": NO_MIME_TYPE,
    "w3lib-http_content_type_encoding-13": NO_MIME_TYPE,
    "w3lib-http_content_type_encoding-14": "of several values the last holds (Fetch, extract a MIME type)",
    "w3lib-html_body_declared_encoding-15": NOT_CONTENT_TYPE,
    "w3lib-html_body_declared_encoding-16": NOT_CONTENT_TYPE,
    "w3lib-html_body_declared_encoding-18": NOT_CONTENT_TYPE,
    "w3lib-resolve_encoding-20": "`Latin-1` is no label of the Encoding Standard",
}


@pytest.mark.parametrize("row", suite_rows("html5lib/encoding.jsonl"))
def test_documents_declare_what_html5lib_says(row):
    """The encoding that the parser ends with, a late meta included."""
    assert row["encoding"].lower() == decide(document(row["html"]), "text/html").name.lower()


@pytest.mark.parametrize("row", suite_rows("wpt-html/content-type.jsonl"))
def test_content_types_are_those_of_the_browsers(row):
    """Malformed headers are common; what they mean is what browsers make of them."""
    essence, charset = parse_content_type(row["header"])
    assert (row["essence"], row["encoding"]) == (essence or None, name_of(charset) if charset else None)


@pytest.mark.parametrize("row", suite_rows("w3lib/w3lib-encoding.jsonl"))
def test_encodings_are_those_of_w3lib_where_the_standards_agree(row):
    """A peer's habits: differences need a standard behind them. It names encodings by Python's codecs."""
    if reason := W3LIB_DEVIATIONS.get(row["id"]):
        pytest.skip(reason)
    argument = row["args"][0]
    if row["op"] == "http_content_type_encoding":
        name = name_of(parse_content_type(argument).charset or "")
    elif row["op"] == "html_body_declared_encoding":
        name = decide(argument["bytes_latin1"].encode("latin-1"), "text/html").name
    else:
        name = name_of(argument)
    assert row["expect"] == CODECS[name]

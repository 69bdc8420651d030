from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.web.content_type import ContentType, parse_content_type
from pipeline.web.encoding import Encoding, decide, decode
from pipeline.web.encoding_labels import CODECS, name_of

NEWS = {
    "windows-1251": "Центральный банк сохранил ключевую ставку на уровне прошлого заседания, сообщил регулятор.",
    "KOI8-R": "Центральный банк сохранил ключевую ставку на уровне прошлого заседания, сообщил регулятор.",
    "windows-1252": "Le président a annoncé mercredi une série de mesures destinées à l\u2019économie française.",
    "windows-1250": "Rząd przyjął we wtorek projekt ustawy budżetowej na przyszły rok, mówi minister finansów.",
    "gb18030": "中国人民银行宣布将从下周起下调金融机构存款准备金率以支持实体经济发展。",
    "Big5": "行政院會今天通過明年度中央政府總預算案歲出規模創下歷史新高。",
    "Shift_JIS": "政府は来年度の予算案を閣議決定した。一般会計の総額は過去最大となった。",
    "EUC-JP": "政府は来年度の予算案を閣議決定した。一般会計の総額は過去最大となった。",
    "EUC-KR": "정부는 오늘 국무회의를 열고 내년도 예산안을 의결했다고 밝혔다.",
}


def text_of(body: bytes, content_type: str = "text/html") -> str:
    """The body as it is read."""
    return decode(body, decide(body, content_type))[0]


@pytest.mark.parametrize(
    ("body", "content_type", "encoding"),
    [
        (b"\xef\xbb\xbfa", "text/html; charset=windows-1251", ("UTF-8", "bom")),
        (b"\xff\xfea\0", "text/html; charset=utf-8", ("UTF-16LE", "bom")),
        (b"\xfe\xff\0a", "", ("UTF-16BE", "bom")),
        (b"<meta charset=gbk>", "text/html; charset=latin1", ("windows-1252", "header")),
        (b"<meta charset=gbk>", "text/html; charset=no-such", ("GBK", "meta")),
        (b"<meta charset=gbk>", "", ("GBK", "meta")),
        (b'<?xml version="1.0" encoding="koi8-r"?><rss>', "application/rss+xml", ("KOI8-R", "xml")),
        (b"<?xml version='1.0' encoding = 'koi8-r' ?>", "text/html", ("KOI8-R", "xml")),
        (b'<?xml version="1.0"?><a encoding="gbk"/>', "text/xml", ("UTF-8", "default")),
        (b'<?xml version="1.0" encoding="utf-16"?>', "text/xml", ("UTF-8", "xml")),
        ("<?xml version='1.0'?>".encode("utf-16-le"), "text/xml", ("UTF-16LE", "xml")),
        ("<?xml version='1.0'?>".encode("utf-16-be"), "text/html", ("UTF-16BE", "xml")),
        (b"<rss><![CDATA[<meta charset=gbk>]]>", "application/rss+xml", ("UTF-8", "default")),
        (b'{"html":"<meta charset=gbk>"}', "application/json", ("UTF-8", "default")),
        ("<p>é".encode(), "text/html", ("UTF-8", "valid_utf8")),
        ("<p>é".encode()[:-1], "text/html", ("UTF-8", "valid_utf8")),
        (b"<p>plain", "text/html", ("windows-1252", "default")),
        (b"", "", ("windows-1252", "default")),
    ],
)
def test_the_strongest_evidence_decides(body, content_type, encoding):
    """HTML 13.2.3.2: mark, header, document, bytes, default; a label that nobody knows is no evidence."""
    assert Encoding(*encoding) == decide(body, content_type)


@pytest.mark.parametrize(("size", "evidence"), [(500, "meta"), (2_000, "late_meta"), (20_000, "default")])
def test_a_meta_behind_a_long_comment_is_found(size, evidence):
    """Browsers find it while they parse; the page is unreadable without it."""
    assert evidence == decide(b"<!--".ljust(size, b"-") + b"><meta charset=gbk>", "text/html").evidence


@pytest.mark.parametrize("name", NEWS)
def test_undeclared_text_is_told_by_its_bytes(name):
    """Old sites declare nothing; their pages are still read."""
    codec = "euc-kr" if name == "EUC-KR" else CODECS[name]
    body = b"<html><body>" + b"<p class=a>" * 1_000 + NEWS[name].encode(codec) + b"</p>"
    encoding = decide(body, "text/html")
    assert Encoding(name, "detected") == encoding
    assert text_of(body).endswith(f"{NEWS[name]}</p>")


def test_utf8_with_a_broken_byte_stays_utf8():
    """One bad byte in a page must not turn all of it into another alphabet."""
    text = NEWS["windows-1251"]
    body = text.encode() + b"\xff" + text.encode()
    encoding = decide(body, "")
    assert Encoding("UTF-8", "detected") == encoding
    assert (f"{text}\ufffd{text}", 1) == decode(body, encoding)


@pytest.mark.parametrize(
    ("body", "label", "text", "replacements"),
    [
        (b"\xef\xbb\xbfa", "utf-8", "a", 0),
        ("a\ufffd".encode() + b"\xff", "utf-8", "a\ufffd\ufffd", 1),
        (b"\xff\xfea\0\0", "utf-16", "a\ufffd", 1),
        (b"\x80\x81\xe9", "iso-8859-1", "€\x81é", 0),
        (b"\xaa\x81", "windows-1253", "\ufffd\x81", 1),
        ("\u9fb4é".encode("gb18030"), "gb2312", "\u9fb4é", 0),
        (b"\x87\x40", "shift_jis", "①", 0),
        (b"\x8c\x63", "ks_c_5601-1987", "똠", 0),
        (b"a\x80", "x-user-defined", "a\uf780", 0),
        (b"<script>", "iso-2022-kr", "\ufffd", 1),
        (b"", "iso-2022-kr", "", 0),
        (b"\xf9\xec\xe5\xed", "visual", "שלום", 0),
    ],
)
def test_bytes_become_the_characters_of_the_standard(body, label, text, replacements):
    """Labels mean more on the web than in Python: latin1 has the quotation marks of windows-1252."""
    assert (text, replacements) == decode(body, Encoding(name_of(label), "header"))


@pytest.mark.parametrize("name", CODECS)
def test_every_encoding_decodes_any_bytes(name):
    """A codec that Python does not have, or a strict one, would stop a stage."""
    text, replacements = decode(bytes(range(256)) * 2, Encoding(name, "header"))
    assert isinstance(text, str)
    assert replacements <= len(text)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("UTF8", "UTF-8"),
        (" \nLatin1\t", "windows-1252"),
        ("x-gbk", "GBK"),
        ("utf-7", None),
        ("", None),
        ("\xa0utf8", None),
    ],
)
def test_labels_are_those_of_the_standard(label, name):
    """Not Python's own aliases: utf-7 would be a hole."""
    assert name == name_of(label)


@pytest.mark.parametrize(
    ("header", "essence", "charset"),
    [
        ("Text/HTML", "text/html", None),
        ("text/html; a=b; CharSet=X", "text/html", "X"),
        ('text/html; charset="a;\\"b"', "text/html", 'a;"b'),
        ("text/html; charset=; charset=b", "text/html", "b"),
        ("text/html, */*", "text/html", None),
        ("text/html; charset=a, text/html", "text/html", "a"),
        ("text/html; charset=a, text/plain", "text/plain", None),
        ('text/html; x="a,b"; charset=c', "text/html", "c"),
        ("text", "", None),
        ("; charset=a", "", None),
    ],
)
def test_a_content_type_is_read_as_by_browsers(header, essence, charset):
    """Fetch Standard, "extract a MIME type"."""
    assert ContentType(essence, charset) == parse_content_type(header)


TOKENS = rb"""< meta / > <!-- --> <?xml <a = " ' ; charset content http-equiv content-type encoding utf-8 gbk""".split()
MARKUP = st.lists(st.sampled_from([*TOKENS, b" ", b"\0", b"\xff"]), max_size=40).map(b"".join)


@given(MARKUP | st.binary(max_size=100), st.text(max_size=30) | st.sampled_from(["text/html", "text/xml"]))
def test_any_body_has_an_encoding_that_decodes_it(body, content_type):
    """Bodies are bytes of strangers."""
    encoding = decide(body, content_type)
    text, replacements = decode(body, encoding)
    assert encoding.name in CODECS
    assert 0 <= replacements <= len(text)

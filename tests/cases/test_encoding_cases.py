"""Acceptance cases on HTML that are about the encoding alone."""

from __future__ import annotations

from pipeline.web.encoding import decide, decode


def test_html_05_a_byte_order_mark_beats_the_header():
    """Servers add a default charset to files that they did not write."""
    body = "\ufeff<!DOCTYPE html><p>Привет!".encode()
    encoding = decide(body, "text/html; charset=windows-1251")
    assert "UTF-8" == encoding.name
    assert ("<!DOCTYPE html><p>Привет!", 0) == decode(body, encoding)


def test_html_06_only_a_real_declaration_is_believed():
    """`charset=` in a description or a foreign attribute is text; odd labels are those of the Encoding Standard."""
    bodies = [
        '<meta name="description" content="charset=gbk"><p>naïve</p>'.encode(),
        '<meta data-charset="gbk"><p>naïve</p>'.encode(),
        b'<meta http-equiv="Content-Type" content="text/html; charset=visual"><p>\xf9\xec\xe5\xed',
        '<meta charset="utf-16"><p>naïve'.encode(),
        b'<meta charset="nonsense-8"><p>plain</p>',
    ]
    encodings = [decide(body, "text/html") for body in bodies]
    assert ["UTF-8", "UTF-8", "ISO-8859-8", "UTF-8", "windows-1252"] == [encoding.name for encoding in encodings]
    texts = [decode(body, encoding)[0] for body, encoding in zip(bodies, encodings, strict=True)]
    words = ["naïve", "naïve", "שלום", "naïve", "plain"]
    assert all(word in text for word, text in zip(words, texts, strict=True))

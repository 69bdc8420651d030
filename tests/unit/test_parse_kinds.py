from __future__ import annotations

import pytest

from pipeline.parse.kinds import Kind, kind_of


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"<!doctype html><p>x", "text/html; charset=utf-8", Kind.HTML),
        (b"plain", "text/html", Kind.HTML),
        (b"", "text/html", Kind.HTML),
        (b"<?xml version='1.0'?><html>", "application/xhtml+xml", Kind.HTML),
        (b"<html>", "text/xml", Kind.HTML),
        (b"<base href=x>", "", Kind.HTML),
        (b"<p>x", "application/pdf", Kind.OTHER),
        (b"<rss version='2.0'>", "text/html", Kind.FEED),
        (b"\xef\xbb\xbf\n<?xml version='1.0'?><!-- x -->\n<!DOCTYPE rss [<!ENTITY a 'b'>]><rss>", "", Kind.FEED),
        (b"<a:feed xmlns:a='http://www.w3.org/2005/Atom'>", "application/xml", Kind.FEED),
        ("<?xml version='1.0' encoding='utf-16'?><feed>".encode("utf-16"), "", Kind.FEED),
        ("<feed>".encode("utf-16-be"), "text/xml", Kind.FEED),
        (b"<rdf:RDF xmlns='http://purl.org/rss/1.0/'>", "application/xml", Kind.FEED),
        (b"<rdf:RDF xmlns='http://xmlns.com/foaf/0.1/'>", "application/xml", Kind.OTHER),
        (b"broken <item>", "application/rss+xml", Kind.FEED),
        (b"<urlset>", "text/plain", Kind.SITEMAP),
        (b"<!--" + b"x" * 9_000 + b"--><s:sitemapindex>", "text/xml", Kind.SITEMAP),
        (b"http://n.test/1\r\n\nHTTPS://n.test/2", "text/plain", Kind.SITEMAP),
        (b"http://n.test/1\nand more", "text/plain", Kind.OTHER),
        (b"https://n.test/1\n" * 9_000, "application/octet-stream", Kind.SITEMAP),
        (b'{"a": 1}', "application/json; charset=utf-8", Kind.LIST),
        (b"[]", "application/vnd.api+json", Kind.LIST),
        (b' [{"a"', "", Kind.LIST),
        (b"%PDF-1.7", "", Kind.OTHER),
        (b"\x89PNG\r\n", "image/png", Kind.OTHER),
        (b"", "", Kind.OTHER),
        (b"<svg>", "image/svg+xml", Kind.OTHER),
    ],
)
def test_type_and_first_bytes_decide_together(body, content_type, expected):
    """Servers send feeds as text/html, sitemaps as text/plain, and files without a type."""
    assert expected is kind_of(body, content_type)


@pytest.mark.parametrize(
    "body",
    [
        b"<!--" * 20_000,
        b"<!DOCTYPE [" * 8_000,
        b"<!DOCTYPE x [ ] " + b"] " * 30_000,
        b"http://n.test/" + b"\n" * 65_000 + b"x",
        b"http://n.test/" + b" " * 65_000 + b"x",
    ],
)
def test_no_body_makes_the_decision_slow(body):
    """An expression that backtracks would turn 64 KiB into hours; a timeout of the suite would say so."""
    assert kind_of(body) in set(Kind)

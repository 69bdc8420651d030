"""`headrace parse`: what the parse stage sees in a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

import click

from pipeline.cli.options import config_option, json_option, print_json
from pipeline.config import load
from pipeline.parse.content import Content, Options, read_content
from pipeline.parse.directives import product_token
from pipeline.parse.feed import ParsedFeed
from pipeline.parse.html import ParsedHtml
from pipeline.parse.sitemap import ParsedSitemap
from pipeline.web.url import canonicalize

_SHOWN_ENTRIES = 20


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option("--url", required=True, help="Where the file is from: relative links are resolved against it.")
@click.option("--content-type", default="", help="The Content-Type header as sent; without it the first bytes decide.")
@click.option("--x-robots-tag", "robots_headers", multiple=True, help="An X-Robots-Tag header; may be repeated.")
@config_option
@json_option
def parse(
    file: BinaryIO,
    url: str,
    content_type: str,
    robots_headers: tuple[str, ...],
    config_file: Path | None,
    as_json: bool,
) -> None:
    """Show what the parse stage reads in FILE (- for standard input): text, times, links, items, entries."""
    settings = load(config_file).settings
    canonical = canonicalize(url).href
    content = read_content(
        file.read(),
        canonical,
        fetched_at_s=time.time(),
        content_type=content_type,
        robots_header="\n".join(robots_headers),
        options=Options(product_token(settings.fetch.user_agent), settings.frontier.max_url_bytes),
    )
    row = describe(canonical, content)
    if as_json:
        print_json(row)
    else:
        _show(row)


def describe(url: str, content: Content) -> dict[str, Any]:
    """Return a page in the fields of `--json`, which are a contract: some may be added, none change.

    Args:
        url: canonical URL of the page.
        content: the page, read.
    """
    found: dict[str, Any] = {
        "url": url, "kind": str(content.kind), "encoding": None, "title": "", "text": "", "published": None,
        "published_evidence": None, "modified": None, "language": None, "authors": [], "canonical": None,
        "robots": {"index": content.directives.index, "follow": content.directives.follow},
        "links": [
            {"url": href, "rel": link.rel, "nofollow": link.nofollow} for href, link in content.links.found.items()
        ],
        "items": [], "urls": [], "sitemaps": [],
    }  # fmt: skip
    match content.read:
        case ParsedHtml() as html:
            found |= {
                "encoding": html.encoding,
                "title": html.title,
                "text": html.text,
                "published": html.published.value if html.published else None,
                "published_evidence": html.published.evidence if html.published else None,
                "modified": html.modified.value if html.modified else None,
                "language": html.language,
                "authors": list(html.authors),
                "canonical": html.canonical,
            }
        case ParsedFeed() as feed:
            found |= {
                "encoding": feed.encoding,
                "title": feed.title,
                "language": feed.language,
                "items": [item._asdict() for item in feed.items],
            }
        case ParsedSitemap() as sitemap:
            found |= {
                "encoding": sitemap.encoding,
                "urls": [entry._asdict() | {"news": entry.news and entry.news._asdict()} for entry in sitemap.urls],
                "sitemaps": list(sitemap.sitemaps),
            }
    return found


def _show(row: dict[str, Any]) -> None:
    robots = row["robots"]
    lines = {name: row[name] for name in ("url", "kind", "encoding", "title", "language", "canonical")}
    lines["authors"] = ", ".join(row["authors"])
    lines |= {name: row[name] for name in ("published", "published_evidence", "modified")}
    lines["robots"] = f"{'index' if robots['index'] else 'noindex'}, {'follow' if robots['follow'] else 'nofollow'}"
    for name, value in lines.items():
        if value:
            click.echo(f"{name.replace('_', ' '):<18}  {_harmless(value)}")
    for name, entries in (
        ("links", [link["url"] for link in row["links"]]),
        ("items", [item["url"] or item["id"] for item in row["items"]]),
        ("urls", [entry["loc"] for entry in row["urls"]]),
        ("sitemaps", row["sitemaps"]),
    ):
        if entries:
            click.echo(f"{name:<18}  {len(entries)}")
        for entry in entries[:_SHOWN_ENTRIES]:
            click.echo(f"  {_harmless(entry)}")
        if len(entries) > _SHOWN_ENTRIES:
            click.echo(f"  and {len(entries) - _SHOWN_ENTRIES} more; --json prints all")
    if row["text"]:
        click.echo()
        for line in row["text"].splitlines():
            click.echo(_harmless(line))


def _harmless(text: str) -> str:
    """A site's text for a terminal, which would obey its control characters."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)

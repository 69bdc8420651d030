from __future__ import annotations

import hashlib

import pytest

from pipeline import topics
from pipeline.contracts import load_codec
from pipeline.errors import InputError
from pipeline.parse.content import Options
from pipeline.parse.document import (
    LINK_RECORD_BYTES,
    PageReader,
    content_hash,
    dead_letter_draft,
    document_id,
    link_priority,
)
from pipeline.web.domains import PSL_VERSION, registrable_domain
from pipeline.web.partition import partition_for
from tests.unit.parse_pages import FETCHED_AT_MS, page_record, page_value

CODECS = load_codec()
NOW_MS = FETCHED_AT_MS + 250
PARTITIONS = 6


def outputs(body, url="https://n.test/", partition=4, **fields):
    """Decoded outputs of a page by topic, with partition and key."""
    reader = PageReader(CODECS, partitions=PARTITIONS, options=Options())
    found = {topics.DOCUMENTS.name: [], topics.LINKS.name: [], topics.PARSED.name: []}
    for output in reader.outputs(page_value(body, url, **fields), partition, NOW_MS):
        record = CODECS.decode(f"{output.topic}-value", output.value)
        found[output.topic].append((output.partition, output.key, record))
    return found


def one(found, topic):
    """The only record of a topic."""
    ((_, _, record),) = found[topic.name]
    return record


def test_a_page_becomes_a_document_with_all_that_is_known_of_it():
    """A reader of the output sees nothing but this record."""
    body = (
        b"<html lang=en><title>T</title><link rel=canonical href=/c><meta name=author content=A>"
        b"<meta property=article:published_time content=2024-05-10T08:00Z><main>text <a href=/x>x</a></main>"
    )
    fields = {"redirects": ["https://n.test/old"], "source": "mill", "depth": 2}
    ((partition, key, document),) = outputs(body, url="https://www.n.test/p", **fields)[topics.DOCUMENTS.name]
    hashed = hashlib.blake2b(b"T\0text x", digest_size=16).digest()
    assert (4, b"n.test") == (partition, key)
    assert {
        "id": hashlib.blake2b(b"https://www.n.test/p" + hashed, digest_size=16).digest(),
        "crawl": "c1",
        "url": "https://www.n.test/p",
        "domain": "n.test",
        "source": "mill",
        "depth": 2,
        "title": "T",
        "text": "text x",
        "language": "en",
        "authors": ["A"],
        "published": "2024-05-10T08:00:00Z",
        "published_evidence": "meta article:published_time: 2024-05-10T08:00Z",
        "modified": None,
        "canonical": "https://www.n.test/c",
        "encoding": "UTF-8",
        "content_hash": hashed,
        "links": 1,
        "redirects": ["https://n.test/old"],
        "submitted_at_ms": FETCHED_AT_MS - 2_000,
        "fetched_at_ms": FETCHED_AT_MS,
        "parsed_at_ms": NOW_MS,
    } == document


def test_an_unchanged_page_is_the_same_document_and_another_url_is_not():
    """Readers tell versions of a page apart by it; markup that changes daily is none."""
    first = one(outputs(b"<title>T</title><p>text"), topics.DOCUMENTS)
    again = one(outputs(b"<title>T</title><p class=x>text<script>1"), topics.DOCUMENTS)
    changed = one(outputs(b"<title>T</title><p>text!"), topics.DOCUMENTS)
    other = one(outputs(b"<title>T</title><p>text", url="https://n.test/o"), topics.DOCUMENTS)
    assert first["id"] == again["id"]
    assert 3 == len({first["id"], changed["id"], other["id"]})
    assert first["content_hash"] == other["content_hash"]


def test_title_and_text_are_told_apart_in_the_hash():
    """A word that moves from one to the other is a change."""
    assert content_hash("a b", "c") != content_hash("a", "b c")
    assert document_id("https://n.test/", content_hash("", "")) != content_hash("", "")


def test_a_document_that_an_earlier_poll_gave_is_not_published_again():
    """A page that changes and changes back, or has two faces, gives each once; links and answer still go out."""
    body = b"<title>T</title><p>text<a href=/x>x</a>"
    first = outputs(body, poll=1)
    hashed = one(first, topics.DOCUMENTS)["content_hash"]
    again = outputs(body, poll=9, known_content_hashes=[b"0" * 16, hashed])
    assert [] == again[topics.DOCUMENTS.name]
    parsed = one(again, topics.PARSED)
    assert (None, hashed, 9) == (parsed["document_id"], parsed["content_hash"], parsed["poll"])
    links = one(again, topics.LINKS)
    assert (["https://n.test/x"], 9) == (links["urls"], links["poll"])
    assert 1 == len(outputs(body, poll=9, known_content_hashes=[b"0" * 16])[topics.DOCUMENTS.name])


def test_a_feed_has_changed_when_its_urls_have():
    """It is no document: its hash says to the frontier whether a poll brought something new."""

    def hash_of(*urls):
        items = "".join(f"<item><link>https://n.test/{url}</link></item>" for url in urls)
        body = f"<rss version='2.0'><channel>{items}</channel></rss>".encode()
        return one(outputs(body, content_type="application/rss+xml"), topics.PARSED)["content_hash"]

    assert hash_of("a", "b") == hash_of("b", "a")
    assert hash_of("a", "b") != hash_of("b", "c")
    assert hash_of() is None


def test_links_go_in_one_record_for_each_partition():
    """A record a domain would cost the frontier several times as much."""
    hosts = [f"h{number}.d{number}.test" for number in range(40)]
    body = "".join(f"<a href='https://{host}/{page}'>x</a>" for page in range(2) for host in hosts).encode()
    found = outputs(body, url="https://n.test/p", depth=2)
    records = found[topics.LINKS.name]
    assert sorted({partition_for(registrable_domain(host).encode(), PARTITIONS) for host in hosts}) == sorted(
        partition for partition, _, _ in records
    )
    for partition, key, record in records:
        assert key is None
        assert {partition} == {
            partition_for(registrable_domain(url.split("/")[2]).encode(), PARTITIONS) for url in record["urls"]
        }
        assert ("c1", "https://n.test/p", 3, NOW_MS, PSL_VERSION) == (
            record["crawl"],
            record["page"],
            record["depth"],
            record["found_at_ms"],
            record["psl_version"],
        )
    assert 80 == len({url for _, _, record in records for url in record["urls"]})
    parsed = one(found, topics.PARSED)
    assert 80 == parsed["links_found"]
    assert [partition for partition, _, _ in records] == parsed["link_records"]


def test_a_link_record_is_split_at_its_limit():
    """A sitemap has 50,000 URLs; a broker takes messages of 1 MiB."""
    lines = [f"https://n.test/{'x' * 1_000}{number}" for number in range(600)]
    found = outputs("\n".join(lines).encode(), content_type="text/plain")
    sizes = [len(CODECS.encode(topics.LINKS.subject, record)) for _, _, record in found[topics.LINKS.name]]
    assert 3 == len(sizes)
    assert LINK_RECORD_BYTES - 2_000 < max(sizes) <= LINK_RECORD_BYTES
    assert lines == [url for _, _, record in found[topics.LINKS.name] for url in record["urls"]]
    assert 3 == len(one(found, topics.PARSED)["link_records"])


def test_a_page_s_link_to_itself_is_not_sent():
    """The frontier knows the page; `#top` stands on every second one."""
    found = outputs(b"<a href=#top>x</a>")
    assert [] == found[topics.LINKS.name]
    assert 1 == one(found, topics.PARSED)["links_found"]


def test_links_go_out_as_written_and_a_document_has_its_canonical_url():
    """Fetch asks for what the page says; readers know one page by one URL, whichever spelling brought it."""
    body = (
        b"<title>T</title><p>text<a href='/%7ex?utm_source=n#top'>x</a><a href='/~x'>x</a><a href='?gclid=2'>here</a>"
    )
    found = outputs(body, url="https://n.test/%7ea?utm_source=m", redirects=["https://n.test/?fbclid=1"])
    links, document = one(found, topics.LINKS), one(found, topics.DOCUMENTS)
    assert ("https://n.test/~a", ["https://n.test/%7ex?utm_source=n"]) == (links["page"], links["urls"])
    assert ("https://n.test/~a", ["https://n.test/"]) == (document["url"], document["redirects"])
    assert document_id("https://n.test/~a", document["content_hash"]) == document["id"]
    assert "https://n.test/~a" == one(found, topics.PARSED)["url"]


def test_a_page_with_a_long_url_is_read():
    """Which URLs are too long is the frontier's to say, by its own configuration."""
    url = "https://n.test/" + "x" * 5_000
    assert url == one(outputs(b"<title>T</title><p>text", url=url), topics.DOCUMENTS)["url"]


def test_a_page_that_asks_not_to_be_indexed_gives_links_and_no_document():
    """The two wishes are separate."""
    found = outputs(b"<meta name=robots content=noindex><title>T</title><a href=/x>x</a>")
    assert [] == found[topics.DOCUMENTS.name]
    assert ["https://n.test/x"] == one(found, topics.LINKS)["urls"]
    parsed = one(found, topics.PARSED)
    assert parsed["document_id"] is None


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (b"<meta name=robots content=nofollow><title>T</title><a href=/x>x</a><a href=/y>y</a>", ""),
        (b"<title>T</title><a href=/x>x</a><a href=/y>y</a>", "nofollow"),
    ],
)
def test_a_page_that_asks_not_to_follow_gives_a_document_and_no_links(body, header):
    """What was left out for it is counted, so that `explain` can say why."""
    found = outputs(body, robots_header=header)
    assert [] == found[topics.LINKS.name]
    assert "T" == one(found, topics.DOCUMENTS)["title"]
    parsed = one(found, topics.PARSED)
    assert (2, {"nofollow": 2}, []) == (parsed["links_found"], parsed["links_refused"], parsed["link_records"])


def test_nofollow_on_one_link_is_a_hint_and_the_link_is_sent():
    """It is about ranking; robots.txt is where a site closes pages."""
    assert ["https://n.test/x"] == one(outputs(b"<a rel=nofollow href=/x>x</a>"), topics.LINKS)["urls"]


def test_refused_links_are_counted_by_reason():
    """A bad URL is no dead letter: it is one of many on a page."""
    found = outputs(b"<a href=mailto:a@b.test>1</a><a href='http://u:p@x.test/'>2</a>")
    assert {"scheme": 1, "credentials": 1} == one(found, topics.PARSED)["links_refused"]


def test_a_page_with_neither_title_nor_text_is_no_document():
    """There is nothing to read in it."""
    found = outputs(b"<frameset><frame src=/f></frameset>")
    assert [] == found[topics.DOCUMENTS.name]
    assert ["https://n.test/f"] == one(found, topics.LINKS)["urls"]


@pytest.mark.parametrize(
    ("body", "content_type", "kind", "links"),
    [
        (b"<rss><item><title>t</title><link>/1</link></item></rss>", "text/xml", "FEED", ["https://n.test/1"]),
        (b"<urlset><url><loc>/1</loc></url></urlset>", "text/xml", "SITEMAP", ["https://n.test/1"]),
        (b"<sitemapindex><sitemap><loc>/1</loc></sitemap></sitemapindex>", "", "SITEMAP", ["https://n.test/1"]),
        (b'{"a": []}', "application/json", "LIST", []),
        (b"%PDF-1.7", "application/pdf", "OTHER", []),
    ],
)
def test_other_kinds_give_links_and_always_an_answer(body, content_type, kind, links):
    """The end of a crawl is known by the answers: one a page, whatever it was."""
    found = outputs(body, content_type=content_type)
    assert [] == found[topics.DOCUMENTS.name]
    assert links == [url for _, _, record in found[topics.LINKS.name] for url in record["urls"]]
    parsed = one(found, topics.PARSED)
    assert (kind, len(links), NOW_MS, 1) == (
        parsed["kind"],
        parsed["links_found"],
        parsed["parsed_at_ms"],
        parsed["delivery"],
    )


def test_document_and_answer_go_to_the_partition_of_the_page():
    """They must be in the transaction's partition, whatever a key would say."""
    found = outputs(b"<title>T</title>", partition=5)
    assert [5, 5] == [found[topic.name][0][0] for topic in (topics.DOCUMENTS, topics.PARSED)]


@pytest.mark.parametrize("value", [b"", b"junk", b"\0\0\0\0\xff"])
def test_a_value_that_is_no_page_record_is_refused(value):
    """It becomes a dead letter with its bytes untouched."""
    with pytest.raises(InputError):
        PageReader(CODECS, partitions=PARTITIONS, options=Options()).outputs(value, 0, NOW_MS)


def test_a_dead_letter_is_told_to_the_frontier_by_its_page():
    """Else the page would be out for ever, and its crawl never at its end."""
    draft = dead_letter_draft(page_record(b"", url="https://a.n.test/p"), partition=3, now_ms=NOW_MS)
    assert (topics.PARSED, 3, b"n.test") == (draft.topic, draft.partition, draft.key)
    assert "DEAD_LETTER" == CODECS.decode(draft.topic.subject, CODECS.encode(draft.topic.subject, draft.record))["kind"]


def test_links_of_a_poll_are_as_pressing_as_the_poll_and_others_at_most_normal():
    """News that an urgent feed announces is urgent; a whole site behind one urgent page is not."""
    assert [1, 3, 3, 5] == [
        link_priority(page_record(b"", priority=priority, poll=poll))
        for priority, poll in ((1, 4), (1, 0), (3, 0), (5, 0))
    ]

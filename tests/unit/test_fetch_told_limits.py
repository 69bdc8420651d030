from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from pipeline.config import Fetch, ToldLimit
from pipeline.errors import ConfigurationError
from pipeline.fetch.body import Body
from pipeline.fetch.client import Response
from pipeline.fetch.told_limits import ToldLimits

URL = "https://www.site.test/a"


def answer(
    body: bytes = b"", status: int = 200, *headers: tuple[str, str], content_type: str = "text/html"
) -> Response:
    """An answer with a body."""
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    return Response(status, [*pairs, (b"content-type", content_type.encode())], Body(body, len(body)))


def told(response: Response, url: str = URL, source: str = "news.wire", **rule) -> bool:
    """Whether an answer meets a rule."""
    return ToldLimits({"rule": ToldLimit(**rule)}).told(response, url, source) == "rule"


def test_a_text_tells_a_refusal_however_it_is_written():
    """Capitals and encodings are the site's whim."""
    assert told(answer(b"<p>Please VERIFY you are human"), contains=["are you a robot", "Verify you are human"])
    assert told(answer("<meta charset=gbk><title>访问过于频繁".encode("gbk")), contains=["访问过于频繁"])
    assert told(
        answer("Trop de requêtes".encode("latin-1"), content_type="text/html; charset=latin1"), contains=["REQUÊTES"]
    )
    assert not told(answer(b"<p>A report on robots"), contains=["are you a robot"])


def test_an_expression_tells_a_refusal():
    """RE2: no expression is slow on any page."""
    assert told(answer(b"<title>Unusual   traffic</title>"), pattern=r"(?i)<title>[^<]*unusual\s+traffic")
    assert not told(answer(b"<p>unusual traffic in the city"), pattern=r"(?i)<title>[^<]*unusual\s+traffic")
    began = time.process_time()
    assert not told(answer(b"x" * 16_384), pattern=r"(x+x+)+y|(a*)*b")
    assert time.process_time() - began < 1


def test_a_field_tells_a_refusal():
    """Without a look at the page."""
    challenge = answer(b"", 403, ("CF-Mitigated", "Challenge"))
    assert told(challenge, statuses=[403], headers={"cf-mitigated": "challenge"})
    assert not told(answer(b"", 403), statuses=[403], headers={"cf-mitigated": "challenge"})
    assert told(answer(b"", 302, ("Location", "/captcha?x")), statuses=[302], headers={"Location": "/captcha"})


def test_all_that_a_rule_says_must_hold():
    """A rule for one source's site must not stop another's."""
    page = answer(b"<p>slow down")
    rule = {"contains": ["slow down"], "sources": "news.*", "urls": "https://*.site.test/*", "headers": {"server": "x"}}
    full = answer(b"<p>slow down", 200, ("Server", "x/1"))
    assert told(full, **rule)
    assert not told(page, **rule)
    assert not told(full, source="news.wire.eu", **rule)
    assert not told(full, url="https://site.test/a", **rule)
    assert not told(answer(b"<p>slow down", 404, ("Server", "x/1")), **rule)
    assert not told(answer(b"<p>hello", 200, ("Server", "x/1")), **rule)
    assert not told(full, **rule, pattern="never")


def test_only_the_first_bytes_are_looked_at():
    """What stands further down is a page's own text."""
    assert told(answer(b" " * 90 + b"slow down"), contains=["slow down"], within_bytes=99)
    assert not told(answer(b" " * 91 + b"slow down"), contains=["slow down"], within_bytes=99)


def test_the_first_rule_that_is_met_names_it():
    """Each is counted by itself."""
    rules = {"one": ToldLimit(contains=["x"]), "two": ToldLimit(contains=["y"]), "three": ToldLimit(contains=["y"])}
    limits = ToldLimits(rules)
    assert ["one", "two", None] == [limits.told(answer(body), URL, "") for body in (b"xy", b"y", b"z")]


def test_no_more_of_an_error_page_is_read_than_a_rule_looks_at():
    """Error pages are not read otherwise."""
    limits = ToldLimits(
        {
            "text": ToldLimit(statuses=[403, 503], contains=["x"], within_bytes=100),
            "wire": ToldLimit(statuses=[403], contains=["x"], within_bytes=900, sources="wire"),
            "field": ToldLimit(statuses=[404], headers={"a": "b"}),
        }
    )
    said = {
        (status, source): limits.body_limits(status, URL, source)
        for status, source in ((403, ""), (403, "wire"), (503, "wire"), (404, "wire"), (500, "wire"))
    }
    assert [100, 900, 100, None, None] == [limit and limit.decoded_bytes for limit in said.values()]
    assert all(limit is None or (limit.cut and limit.wire_bytes == limit.decoded_bytes) for limit in said.values())


def test_without_configuration_one_rule_holds_that_can_hit_no_page():
    """A field that is sent with a challenge alone (Cloudflare's documentation of cf-mitigated)."""
    limits = ToldLimits(Fetch().told_limits)
    assert "cloudflare" == limits.told(answer(b"", 403, ("cf-mitigated", "challenge")), URL, "")
    assert limits.told(answer(b"<p>verify you are human", 403), URL, "") is None
    assert limits.body_limits(403, URL, "") is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"contains": ["x"], "sources": "news.>.x"}, "fetch.told_limits.mine.sources: 'news.>.x' is no pattern"),
        (
            {"contains": ["x"], "urls": "site.test/*"},
            "fetch.told_limits.mine.urls: 'site.test/*' matches no canonical URL",
        ),
        ({"pattern": "(?=x)"}, "fetch.told_limits.mine.pattern: '(?=x)' is no RE2 expression: invalid perl operator"),
        ({"pattern": "(x"}, "fetch.told_limits.mine.pattern: '(x' is no RE2 expression: missing )"),
    ],
)
def test_what_is_wrong_with_a_rule_is_said_at_the_start(rule, said):
    """Not when the first page comes."""
    with pytest.raises(ConfigurationError) as caught:
        ToldLimits({"mine": ToldLimit(**rule)})
    assert said in str(caught.value)


@pytest.mark.parametrize("rule", [{}, {"statuses": [403]}, {"contains": [""]}, {"pattern": "x", "statuses": []}])
def test_a_rule_that_every_page_would_meet_is_none(rule):
    """It would stop the crawl."""
    with pytest.raises(ValidationError):
        ToldLimit(**rule)

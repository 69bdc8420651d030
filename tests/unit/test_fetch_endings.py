from __future__ import annotations

import pytest

from pipeline.errors import SiteError
from pipeline.fetch.body import Body, BodyTooLarge
from pipeline.fetch.client import Response
from pipeline.fetch.endings import Ending, judge, judge_error, wants_page
from pipeline.fetch.guard import RefusedAddress
from pipeline.fetch.redirects import Cookies, SamePage, leads_back, target
from pipeline.fetch.wishes import read_wishes
from pipeline.web.url import canonicalize

URL = "http://site.test/a"


def answer(status: int = 200, *headers: tuple[str, str], body: Body | None = None, error: SiteError | None = None):
    """A response; HTML unless a type is given."""
    pairs = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    if not any(name == b"content-type" for name, _ in pairs):
        pairs.append((b"content-type", b"text/html"))
    return Response(status, pairs, body if body is not None else Body(b"<p>", 3), "192.0.2.1", error=error)


def ending(response: Response, **given) -> Ending:
    """The verdict on a response to `URL`."""
    world = {
        "url": URL,
        "chain": [],
        "max_redirects": 10,
        "longest_refresh_s": 5.0,
        "is_conditional": False,
        "retry_truncated": False,
        "asked": read_wishes(response, 1000.0),
    }
    return judge(response, **{**world, **given})


def kind(response: Response, **given) -> tuple[str, str]:
    """Outcome and reason."""
    verdict = ending(response, **given)
    return verdict.outcome, verdict.reason


def redirect(location: str, status: int = 302) -> Response:
    """A redirect, its Location in Latin-1."""
    return answer(status, ("Location", location))


def test_a_page_is_a_200_with_a_body_that_can_be_read():
    """FETCHED promises a page record, whatever else it may be."""
    assert ("FETCHED", "") == kind(answer())
    assert ("HTTP_ERROR", "empty_body") == kind(answer(body=Body()))
    assert ("REFUSED", "content_type") == kind(answer(200, ("Content-Type", "image/png")))


@pytest.mark.parametrize(
    ("content_type", "readable"),
    [
        ("text/html; charset=utf-8", True),
        ("TEXT/HTML", True),
        ("application/xhtml+xml", True),
        ("application/rss+xml", True),
        ("application/atom+xml;type=feed", True),
        ("application/feed+json", True),
        ("application/json", True),
        ("text/plain", True),
        ("", True),
        ("image/svg+xml", False),
        ("application/pdf", False),
        ("application/octet-stream", False),
        ("video/mp4", False),
        ("text/css", False),
    ],
)
def test_bodies_are_read_by_their_type(content_type, readable):
    """A film is not downloaded to be thrown away."""
    assert readable == wants_page(answer(200, ("Content-Type", content_type)), URL)
    assert not wants_page(answer(404, ("Content-Type", content_type)), URL)


@pytest.mark.parametrize("content_type", ["application/x-gzip", "application/gzip", "application/octet-stream"])
def test_sitemaps_and_feeds_are_read_though_they_are_sent_as_any_file(content_type):
    """Many servers know a packed file by nothing but that; its name tells what it is."""
    file = answer(200, ("Content-Type", content_type))
    for name in ("/sitemap.xml.gz", "/sitemap_3.xml.gz?x=1", "/SITEMAP-news.gz", "/urls.txt.gz", "/feed.rss", "/a.xml"):
        assert wants_page(file, f"http://site.test{name}")
        assert ("FETCHED", "") == kind(file, url=f"http://site.test{name}")
    for name in ("/", "/linux.tar.gz", "/sitemap/linux.tgz", "/a.gz", "/get?file=sitemap.xml.gz", "/a.exe"):
        assert not wants_page(file, f"http://site.test{name}")


def test_a_page_that_is_not_whole_is_asked_for_once_more():
    """Then it is taken with its mark: some sites announce a wrong length for ever."""
    cut = answer(body=Body(b"<p>half", 7, "content_length"))
    assert ("NETWORK_ERROR", "truncated:content_length") == kind(cut, retry_truncated=True)
    assert ("FETCHED", "") == kind(cut)
    assert ("NETWORK_ERROR", "truncated:encoding") == kind(answer(body=Body(b"", 7, "encoding")))


def test_errors_are_told_apart_by_who_can_mend_them():
    """A limit and a refused address are final; noise is retried."""
    assert ("TOO_LARGE", "ratio") == kind(answer(error=BodyTooLarge("ratio", 200)))
    assert ("NETWORK_ERROR", "total_timeout") == kind(answer(error=SiteError("total_timeout")))
    assert "REFUSED" == judge_error(RefusedAddress("127.0.0.1", 80, "loopback")).outcome
    assert Ending("REFUSED", "unsupported_encoding") == judge_error(SiteError("unsupported_encoding"))
    assert Ending("NETWORK_ERROR", "dns") == judge_error(SiteError("dns"))


def test_304_is_an_answer_only_to_a_question():
    """RFC 9110 15.4.5: the stored copy stands; without one, the page is asked for again."""
    assert ("NOT_MODIFIED", "") == kind(answer(304), is_conditional=True)
    assert ("NETWORK_ERROR", "unasked_304") == kind(answer(304))


@pytest.mark.parametrize("status", [201, 204, 206, 300, 305, 306, 400, 401, 403, 404, 410, 500, 502, 503, 504, 999])
def test_any_other_status_is_an_http_error_with_its_number(status):
    """The frontier decides by the number whether to try again."""
    assert ("HTTP_ERROR", f"http_{status}") == kind(answer(status))
    assert ("HTTP_ERROR", f"http_{status}") == kind(answer(status, ("Location", "/b")))


def test_a_site_that_complains_is_heard():
    """Outcomes with 429, 503 or Retry-After are committed at once, and the gate is told."""
    limited = ending(answer(429, ("Retry-After", "120")))
    assert ("RATE_LIMITED", "http_429", 120.0, True) == (
        limited.outcome,
        limited.reason,
        limited.asked.wish_s,
        limited.is_overload,
    )
    assert ending(answer(503)).is_overload
    assert ending(answer(200, ("Retry-After", "5"))).is_overload
    assert not ending(answer(500)).is_overload
    assert ending(answer(429, ("Retry-After", "soon"))).asked.wish_s is None


def test_a_window_that_is_used_up_is_a_wish_and_one_that_is_not_is_none():
    """The next request would be refused: whoever owns the domain next must hear of it, so it is committed at once."""
    used_up = ending(answer(200, ("RateLimit", '"default";r=0;t=30')))
    assert ("FETCHED", 30.0, True) == (used_up.outcome, used_up.asked.rest_s, used_up.is_overload)
    assert 60 == ending(answer(200, ("RateLimit", '"d";r=0;t=30'), ("Retry-After", "60"))).asked.rest_s
    some_left = ending(answer(200, ("RateLimit", '"default";r=3;t=30')))
    assert (None, False) == (some_left.asked.rest_s, some_left.is_overload)


def test_a_date_is_read_by_the_site_s_own_clock():
    """A clock that is behind here or there must not bring the next request before its time."""
    in_two_minutes = ("Retry-After", "Thu, 01 Jan 1970 00:18:40 GMT")
    assert 120 == ending(answer(429, in_two_minutes)).asked.wish_s
    assert 180 == ending(answer(429, in_two_minutes, ("Date", "Thu, 01 Jan 1970 00:15:40 GMT"))).asked.wish_s
    assert 120 == ending(answer(429, in_two_minutes, ("Date", "Thu, 01 Jan 1970 00:17:40 GMT"))).asked.wish_s
    assert 120 == ending(answer(429, in_two_minutes, ("Date", "Thu, 01 Jan 1969 00:17:40 GMT"))).asked.wish_s


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_names_its_canonical_target(status):
    """The target is one key, whoever redirects to it."""
    verdict = ending(redirect("../b?utm_source=x#top", status))
    assert verdict.location is not None
    assert ("REDIRECTED", "http://site.test/b") == (verdict.outcome, verdict.location.href)


def test_a_loop_is_told_over_the_whole_chain():
    """Each hop is a task of its own: only the chain shows the circle."""
    assert ("HTTP_ERROR", "redirect_loop") == kind(redirect("/a"))
    assert ("HTTP_ERROR", "redirect_loop") == kind(redirect("/a#part"))
    assert ("HTTP_ERROR", "redirect_loop") == kind(redirect("/start"), chain=["http://site.test/start"])
    assert ("REDIRECTED", "") == kind(redirect("/c"), chain=["http://site.test/start"])


def test_a_chain_has_an_end():
    """A maze of ever new URLs is no page."""
    chain = [f"http://site.test/{number}" for number in range(10)]
    assert ("REDIRECTED", "") == kind(redirect("/z"), chain=chain[:9])
    assert ("HTTP_ERROR", "too_many_redirects") == kind(redirect("/z"), chain=chain)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("https://:443/", "no_host"),
        ("ftp://site.test/", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("data:text/html,<p>", "scheme"),
        ("mailto:a@site.test", "scheme"),
        ("http://a b/", "unparsable"),
        ("http://site.test:0/", "port"),
        ("http://site.test:99999/", "port"),
        ("/" + "a" * 3000, "too_long"),
    ],
)
def test_a_location_that_is_not_fetched_ends_the_way(location, why):
    """It is the site's fault, and no reason to go elsewhere."""
    assert ("HTTP_ERROR", f"bad_location:{why}") == kind(redirect(location))


@pytest.mark.parametrize(
    ("location", "followed"),
    [
        ("http://user:secret@site.test/b", "http://site.test/b"),
        ("//user@other.test/b?x=a@b", "http://other.test/b?x=a@b"),
        ("https://a@b@other.test", "https://other.test/"),
        ("http:\\\\user:secret@other.test\\b", "http://other.test/b"),
        ("/@b", "http://site.test/@b"),
    ],
)
def test_names_and_passwords_in_a_location_are_dropped(location, followed):
    """The page may be public; whose password it is, is nobody's business, and it must not get into a record."""
    location_of = ending(redirect(location)).location
    assert location_of is not None
    assert followed == location_of.wire


def test_names_and_passwords_stay_out_of_messages():
    """Messages are logged."""
    for written in ("http://user:secret@/", "http://user:secret@a b/", "http://user:secret@h:99999999/"):
        with pytest.raises(SiteError) as caught:
            target(redirect(written), URL)
        assert "secret" not in str(caught.value)


def test_of_several_locations_none_is_followed_unless_they_agree():
    """Which one is meant nobody can tell; browsers end there."""
    two = answer(302, ("Location", "/b"), ("Location", "/c"))
    assert ("HTTP_ERROR", "several_locations") == kind(two)
    assert ("REDIRECTED", "") == kind(answer(302, ("Location", "/b"), ("Location", " /b")))


def test_a_circle_that_sets_a_cookie_is_told_from_one_that_goes_on_for_ever():
    """Behind a gate there is a page; with a browser, or with cookies of one's own, it can be had."""
    back = answer(302, ("Location", "/start"), ("Set-Cookie", "seen=1"))
    assert ("HTTP_ERROR", "cookie_gate") == kind(back, chain=["http://site.test/start"])
    assert ("HTTP_ERROR", "redirect_loop") == kind(redirect("/start"), chain=["http://site.test/start"])


def test_a_redirect_without_a_place_ends_the_way():
    """An empty Location resolves to the page itself, which is not what was meant."""
    assert ("HTTP_ERROR", "no_location") == kind(answer(302))
    assert ("HTTP_ERROR", "no_location") == kind(redirect(""))
    assert ("HTTP_ERROR", "no_location") == kind(redirect(" \t "))


def meta_refresh(content: str, before: str = "") -> Response:
    """A page that asks for a refresh."""
    page = f"<title>Moved</title>{before}<meta http-equiv=refresh content={content!r}>"
    return answer(body=Body(page.encode(), len(page)))


@pytest.mark.parametrize(
    "response",
    [
        answer(200, ("Refresh", "0; url=/b")),
        answer(200, ("Refresh", "5;URL='http://site.test/b#x'")),
        answer(200, ("Refresh", "0; url=http://me:secret@site.test/b")),
        answer(200, ("Refresh", "0;/b"), ("Content-Type", "text/plain")),
        answer(200, ("Refresh", "0;/b"), body=Body(b"<meta http-equiv=refresh content='0;url=/c'>", 50)),
        answer(200, ("Refresh", "600"), body=Body(b"<meta http-equiv=refresh content='0;url=/b'>", 50)),
        meta_refresh("0; url=/b"),
        meta_refresh("5; url=b"),
        meta_refresh("0; url=b", before="<base href=/x/../>"),
        meta_refresh("0; url=b", before="<base href=javascript:>"),
    ],
)
def test_a_page_that_leads_on_by_itself_is_a_redirect(response):
    """A stub that says "moved" is no document, and its target counts as a hop."""
    verdict = ending(response)
    assert ("REDIRECTED", "refresh") == (verdict.outcome, verdict.reason)
    assert verdict.location is not None
    assert "http://site.test/b" == verdict.location.href


@pytest.mark.parametrize(
    "response",
    [
        answer(200, ("Refresh", "300")),
        answer(200, ("Refresh", "0")),
        answer(200, ("Refresh", "6; url=/b")),
        answer(200, ("Refresh", "0; url=/a?utm_source=x")),
        answer(200, ("Refresh", "0; url=javascript:alert(1)")),
        answer(200, ("Refresh", "soon; url=/b")),
        meta_refresh("10; url=/next"),
        meta_refresh("0; url=#top"),
        meta_refresh("0; url="),
        answer(200, ("Content-Type", "application/rss+xml"), body=Body(b"<meta http-equiv=refresh content='0;/b'>", 9)),
    ],
)
def test_a_page_that_stays_is_a_page(response):
    """A front page that is loaded anew, a slide that is meant to be read."""
    assert ("FETCHED", "") == kind(response)


def test_refreshes_count_like_redirects():
    """A maze of pages that lead on has an end too."""
    onward = answer(200, ("Refresh", "0; url=/z"))
    chain = [f"http://site.test/{number}" for number in range(10)]
    assert ("HTTP_ERROR", "too_many_redirects") == kind(onward, chain=chain)
    assert ("HTTP_ERROR", "redirect_loop") == kind(onward, chain=["http://site.test/z"])
    checking = answer(200, ("Refresh", "0; url=/z"), ("Set-Cookie", "seen=1"))
    assert ("HTTP_ERROR", "cookie_gate") == kind(checking, chain=["http://site.test/z"])


def test_only_a_page_leads_on_by_itself():
    """An error stays one, whatever it leads to; half a page may be any."""
    assert ("HTTP_ERROR", "http_404") == kind(answer(404, ("Refresh", "0; url=/")))
    half = answer(200, ("Refresh", "0; url=/b"), body=Body(b"<p>half", 7, "content_length"))
    assert ("NETWORK_ERROR", "truncated:content_length") == kind(half, retry_truncated=True)
    assert ("FETCHED", "") == kind(answer(200, ("Refresh", "3; url=/b")), longest_refresh_s=2.0)


def test_only_a_redirect_to_the_same_page_leads_back():
    """A redirect to the same page is told from one to another page by the key alone."""
    page = canonicalize(URL)
    assert page == leads_back(redirect("http://SITE.test:80/a#x"), page)
    assert canonicalize(f"{URL}?utm_source=x") == leads_back(redirect("?utm_source=x"), page)
    assert page == leads_back(redirect("/a"), canonicalize(f"{URL}?utm_source=x"))
    assert leads_back(redirect("/b"), page) is None
    assert leads_back(redirect("::"), canonicalize("http://site.test/b")) is None
    assert leads_back(answer(302), page) is None
    assert leads_back(answer(200, ("Location", "/a")), page) is None


def test_a_page_is_asked_for_again_with_each_new_cookie_and_spelling():
    """A gate that sets the same cookie again and again is a loop."""
    page, other = SamePage(canonicalize(URL)), canonicalize(f"{URL}?utm_source=x")
    assert page.goes_on(answer(302, ("Location", "/a"), ("Set-Cookie", "seen=1")))
    assert (canonicalize(URL), {"Cookie": "seen=1"}) == (page.url, page.headers())
    assert page.goes_on(answer(302, ("Location", "?utm_source=x"), ("Set-Cookie", "seen=1")))
    assert other == page.url
    assert page.goes_on(answer(302, ("Location", "/a"), ("Set-Cookie", "seen=2")))
    assert page.goes_on(answer(302, ("Location", "?utm_source=x"), ("Set-Cookie", "seen=3")))
    assert not page.goes_on(answer(302, ("Location", "/a"), ("Set-Cookie", "seen=1")))
    assert other == page.url


def test_cookies_go_back_as_they_were_set():
    """The last one of a name counts, and one that is to be forgotten is."""
    cookies = Cookies()
    assert {} == cookies.headers()
    cookies.take(answer(302, ("Set-Cookie", "seen=1; Path=/"), ("Set-Cookie", "b=two words; HttpOnly")))
    assert {"Cookie": "seen=1; b=two words"} == cookies.headers()
    cookies.take(answer(302, ("Set-Cookie", "seen=2")))
    assert {"Cookie": "seen=2; b=two words"} == cookies.headers()
    cookies.take(answer(302, ("Set-Cookie", "seen=; Max-Age=0")))
    assert {"Cookie": "b=two words"} == cookies.headers()


@pytest.mark.parametrize("line", ["", "novalue", "=x", "a\x01=b", "a=b\x7f", "é=1", "a=é", "a=" + "x" * 5000])
def test_cookies_that_are_no_cookies_are_left_out(line):
    """What a site sets is sent back in a header: nothing may stand there that is none."""
    cookies = Cookies()
    cookies.take(answer(302, ("Set-Cookie", line)))
    assert {} == cookies.headers()


def test_the_number_of_cookies_is_bounded():
    """A header of megabytes helps nobody."""
    cookies = Cookies()
    for number in range(200):
        cookies.take(answer(302, ("Set-Cookie", f"c{number}={'x' * 10}")))
    assert 50 == cookies.headers()["Cookie"].count("=")


def test_a_location_in_raw_bytes_is_read_as_browsers_do():
    """UTF-8 where it is UTF-8, else byte by byte."""
    raw = Response(302, [(b"location", "/fa/خبر".encode())])
    assert "http://site.test/fa/%D8%AE%D8%A8%D8%B1" == target(raw, URL).href
    assert "http://site.test/caf%E9" == target(Response(302, [(b"location", b"/caf\xe9")]), URL).href

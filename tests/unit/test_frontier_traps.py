from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import topics
from pipeline.config import Frontier
from pipeline.frontier.records import VARIANTS
from pipeline.frontier.seen import SeenTable
from pipeline.frontier.traps import TrapLimits, trap
from pipeline.frontier.variants import MAX_SESSIONS, Variants, max_queries, without_session
from tests.fakes import MemoryView
from tests.frontier_world import Bench, Page, World, make_crawl, make_stage, make_task

YEAR = 2026
HASH = "1a79a4d60de6718e8e5b326e338ae533"


def make_variants(view, max_queries):
    """Counts without a horizon."""
    return Variants(view, Frontier(max_queries_per_path=max_queries), SeenTable(view))


def reason_of(path, **limits):
    """Why a path of a site is a trap, empty where it isn't."""
    found = trap(f"http://h.test{path}", TrapLimits(**limits), YEAR)
    return "" if found is None else found.reason


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/a/b/a/b/a/b", "path_repetition: 3, at most 2: a/b"),
        (
            "/docs/a/www.p.test/policies/www.p.test/policies/www.p.test/policies/",
            "path_repetition: 3, at most 2: www.p.test/policies",
        ),
        ("/start/x/x/x/end", "path_repetition: 3, at most 2: x"),
        ("/a/x/b/x/c/x/d/x/e/x", "path_repetition: 5, at most 4: x"),
        ("/a/x/b/x/c/x/d/x/e/x/1/2/1/3/1/4/1/5/1", "path_repetition: 5, at most 4: x"),
        ("/s" + "/7" * 9, "path_repetition: 9, at most 8: 7"),
        ("/1/2" * 9, "path_repetition: 9, at most 8: 1/2"),
        ("/7/" + "/7/".join("abcdefghi"), "path_repetition: 9, at most 8: 7"),
        ("/p?" + "&".join(["a="] * 17), "repeated_parameter: 17, at most 16: a"),
        ("/" + "/".join(map(str, range(33))), "path_depth: 33, at most 32"),
        ("/p?" + "&".join(f"a{n}=1" for n in range(33)), "parameters: 33, at most 32"),
        ("/p?a=1&b=2&a=1&a=1", "repeated_parameter: 3, at most 2: a=1"),
        ("/p?" + "&".join(f"a={n}" for n in range(17)), "repeated_parameter: 17, at most 16: a"),
        ("/login?next=%252525252Flogin", "nested_url: next"),
        ("/events/2031/05/", "calendar: 2031, at most 2028: 2031/05"),
        ("/events/2031-05-17/list", "calendar: 2031, at most 2028: 2031-05-17"),
        ("/2031/05", "calendar: 2031, at most 2028: 2031/05"),
        ("/diary/2031/5/7", "calendar: 2031, at most 2028: 2031/5/7"),
        ("/events/1955/5", "calendar: 1955: before 1966: 1955/5"),
        ("/calendar.php?month=1&year=1955", "calendar: 1955: before 1966: year=1955"),
        ("/?calendar_date=1955-01", "calendar: 1955: before 1966: calendar_date=1955-01"),
        ("/calendar/week/2140/3/9/rooms/blue", "calendar: 2140, at most 2028: 2140/3/9"),
        ("/?month=2031-05", "calendar: 2031, at most 2028: month=2031-05"),
        ("/events/?tribe-bar-date=1955-01-01", "calendar: 1955: before 1966: tribe-bar-date=1955-01-01"),
        ("/p?startDate=20310501&x=1", "calendar: 2031, at most 2028: startDate=20310501"),
        ("/p?year=2199&month=4", "calendar: 2199, at most 2028: year=2199"),
    ],
)
def test_each_trap_has_a_name_a_limit_and_a_value(path, said):
    """What is refused must be explained: which limit, and what passed it."""
    assert said == str(trap(f"http://h.test{path}", TrapLimits(), YEAR))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/2024/05/31/markets/wall-street-closes-higher.html",
        "/2024/05/31/",
        "/archive/1999/12/",
        "/1912/04/16/archives/titanic-sinks-four-hours-after-hitting-iceberg.html",
        "/wp-content/uploads/2031/04/plan.pdf",
        "/blog?page=57",
        "/search?q=shoes&color=red&color=blue&size=41&size=42&brand=a&brand=b&sort=price&page=3",
        "/cars?year=1939",
        "/cars?year_from=1925&year_to=1939",
        "/items/9000/12/",
        "/ukpga/1933/12",
        "/eli/reg/1962/11",
        "/q/1732/12",
        "/t/slug/1234/5",
        "/t/slug/2045/5",
        "/t/slug/2045/12/3445",
        "/charts/hot-100/1958-08-04/",
        "/commons/1939-09-03",
        "/sitemap/1939/09/",
        "/boxes/?date=1939-07-04",
        "/friv/dailyleaders.fcgi?month=4&day=1&year=1955",
        "/archive?from=18120501",
        "/events/1234/5",
        "/item?id=3021-05",
        "/company?founded=1871",
        "/parts/2035/4711",
        "/owner/repo/blob/main/src/main/java/com/example/product/module/service/internal/impl/Handler.java",
        "/maven2/org/example/example/1.2/example-1.2.pom",
        "/de/de/produkte",
        "/a/b/a/b",
        "/x/x/y/x/x/y",
        "/p?" + "&".join(f"a{n}=1" for n in range(32)),
        "/00/00/1f/2e",
        "/hotel?checkin=2027-01-03&checkout=2027-01-05",
        "/login?next=%2Fa%3Fb%3D%252F",
        "/feed/?feed=rss2&paged=12",
        "/p?next=/a/a/a/a",
        "/tiles/1/1/1/",
        "/tiles/1/1/1/1/1.png",
        "/11/11/11/x.html",
        "/s" + "/7" * 8,
        "/search?type=&type=&type=",
        "/search?field[]=&field[]=&field[]=&q=a",
        "/news/2026-12-01T10:00",
        "/p?t=1924992000",
        "/p?update=2031-05x",
        "/p?x&y&&",
    ],
)
def test_urls_that_people_follow_are_no_traps(path):
    """Archives, pages of lists, filters and source trees must pass: a lost page costs more than a wasted request."""
    assert not reason_of(path)


def test_limits_are_the_crawl_s():
    """An archive of old papers follows its calendar as far back as it likes."""
    assert "calendar" == reason_of("/events/1920/01/01")
    assert not reason_of("/events/1920/01/01", past_years=300)
    assert not reason_of("/events/2040/05", future_years=20)
    assert "path_depth" == reason_of("/a/b/c", segments=2)
    assert "parameters" == reason_of("/?a&b", parameters=1)


@given(st.lists(st.sampled_from(["docs", "a", "www.p.test", "x"]), min_size=1, max_size=6), st.integers(3, 6))
def test_a_path_that_grows_by_its_own_end_is_always_found(run, times):
    """A relative link on a site that answers any path."""
    assert reason_of("/" + "/".join(["start"] + run * times)) in {"path_repetition", "path_depth"}


@given(
    st.lists(st.integers(0, 10**6).map(str), max_size=20, unique=True), st.dictionaries(st.text("ab"), st.text("01"))
)
def test_paths_of_different_segments_are_never_traps(segments, fields):
    """Whatever their numbers are: a number that could be a year is one only before a month."""
    path = "/".join(f"s{segment}" for segment in segments)
    assert not reason_of(f"/{path}?" + "&".join(f"{name}={value}" for name, value in list(fields.items())[:32]))


@given(st.integers(YEAR - 60, YEAR + 2), st.integers(1, 12), st.integers(1, 31), st.sampled_from(["", "/", "/x.html"]))
def test_archives_of_a_lifetime_pass_in_every_form(year, month, day, end):
    """The window is inclusive at both ends."""
    for path in (f"/{year}/{month:02}/{day:02}{end}", f"/{year}-{month:02}{end}", f"/?date={year}-{month:02}-{day:02}"):
        assert not reason_of(path)


@given(st.text("/?&=;-0123456789aT%(", max_size=300))
def test_any_text_is_judged(path):
    """Nothing that a site can write may take a partition down."""
    href = f"http://h.test/{path}"
    reason_of(f"/{path}")
    without_session(href)
    make_variants(MemoryView([VARIANTS]), 3).refusal("c", href)


@pytest.mark.parametrize(
    "path",
    [
        "/" + "/".join("ab"[n * n % 3 % 2] for n in range(30_000)),
        "/" + "1" * 60_000,
        "/" + "2026-01-" * 8_000,
        "/?" + "&".join(["date=" + "9" * 50] * 1_000),
        "/?date=" + "2026-01-1T" * 6_000,
        "/" + ";jsessionid=" * 5_000,
        "/" + "/(S(" * 15_000,
        "/?s=" + "a" * 60_000,
        "/?s=" + "a1" * 30_000 + "-",
    ],
)
def test_a_long_hostile_url_costs_no_more_than_it_is_long(path):
    """Sixty kilobytes, thirty times what is let in: an expression that backtracks would take hours."""
    begin = time.process_time()
    href = f"http://h.test{path}"
    trap(href, TrapLimits(segments=10**6, parameters=10**6), YEAR)
    without_session(href)
    assert time.process_time() - begin < 1


@pytest.mark.parametrize(
    ("path", "bare"),
    [
        ("/a;jsessionid=0A1B?x=1", "/a?x=1"),
        ("/(S(lit3py55t21z5v55vlm25s55))/a.aspx", "/a.aspx"),
        (f"/a?PHPSESSID={HASH}", "/a"),
        (f"/a?x=1&sid={HASH}&y=2", "/a?x=1&y=2"),
        ("/a?sid=7", None),
        ("/a?s=shoes", None),
        ("/a;v=1?session=summer", None),
        (f"/a;sid={HASH}/b", "/a/b"),
        ("/a;sid=7/b", None),
        ("/talk?sessionid=77", None),
        ("/talk?session_id=opening", None),
        ("/shop?cfid=12&cftoken=7", None),
        (f"/shop?CFTOKEN={HASH}&p=1", "/shop?p=1"),
        ("/a_(b)/c", None),
    ],
)
def test_a_session_identifier_is_told_from_other_parameters(path, bare):
    """A number or a word chooses a page; what is drawn by lot names a visitor."""
    assert (None if bare is None else f"http://h.test{bare}") == without_session(f"http://h.test{path}")


def test_a_page_is_followed_under_few_sessions():
    """A site that writes sessions into links offers each page anew to each request; it is still crawled."""
    bench = Bench(make_stage(delay_s=0))
    bench.links([f"http://h.test/a?PHPSESSID={number:031x}a" for number in range(10)])
    bench.links([f"http://h.test/b?PHPSESSID={number:031x}a" for number in range(1)])
    assert MAX_SESSIONS + 1 == len(bench.urls())
    assert {"session_id": 10 - MAX_SESSIONS} == bench.progress()["refused"]


def test_the_queries_of_a_path_are_followed_up_to_a_limit():
    """A filter page with a hundred boxes has more views than there are atoms; other paths go on."""
    bench = Bench(make_stage(delay_s=0, max_queries_per_path=5))
    bench.links([f"http://h.test/list?a={number}&b=1" for number in range(4)])
    bench.reopen()
    bench.links([f"http://h.test/list?a={number}&b=1" for number in range(10)])
    bench.links(["http://h.test/list", "http://h.test/other?a=1&b=1", "http://h.test/list?a=3&b=1"])
    assert 7 == len(bench.urls())
    assert {"parameter_explosion": 5} == bench.progress()["refused"]
    bench.task("http://h.test/list?a=99&b=1")
    assert ["http://h.test/list?a=99&b=1"] == bench.urls()


def test_crawls_count_queries_apart():
    """One crawl's views are none of the other's business."""
    bench = Bench(make_stage({name: make_crawl(name) for name in "xy"}, delay_s=0, max_queries_per_path=1))
    for crawl in ("x", "y"):
        bench.links(["http://h.test/list?a=1&b", "http://h.test/list?a=2&b"], crawl)
    assert 2 == len(bench.urls())


def test_the_limit_of_a_query_is_told_by_its_fields():
    """An explanation names the limit that held."""
    limits = Frontier(max_queries_per_path=2, max_values_per_path=6)
    assert [2, 6, None] == [max_queries(f"http://h.test/{path}", limits) for path in ("p?a&b", "p?a=1", f"?sid={HASH}")]


def test_where_redirects_lead_is_counted_too():
    """A site that redirects every page to a new session, or view of a list, goes round the limit otherwise."""
    bench = Bench(make_stage(delay_s=0, max_queries_per_path=2))
    for number in range(4):
        bench.send(topics.TASKS, make_task(f"http://h.test/p?a={number}&b=1", redirects=[f"http://h.test/{number}"]))
    assert ["http://h.test/p?a=0&b=1", "http://h.test/p?a=1&b=1"] == bench.urls()
    assert {"parameter_explosion": 2} == bench.progress()["refused"]


def test_queries_of_a_single_field_name_pages():
    """A forum, a wiki and a video site have one path for all they have: it is not cut off like a page of filters."""
    bench = Bench(make_stage(delay_s=0, max_queries_per_path=2, max_values_per_path=6))
    bench.links([f"http://h.test/item?id={number}" for number in range(5)])
    bench.links([f"http://h.test/item?id={number}&PHPSESSID={HASH}" for number in range(5, 8)])
    bench.links([f"http://h.test/item?id={number}&sort=up" for number in range(3)])
    assert 6 + 2 == len(bench.urls())
    assert {"parameter_explosion": 3} == bench.progress()["refused"]


def test_a_count_of_queries_costs_few_rows_and_forgets_little():
    """Most paths have few queries and cost no row; a restart forgets less than a thirty-second of the limit."""
    view = MemoryView([VARIANTS])
    variants = make_variants(view, 320)
    for number in range(9):
        variants.add("c", f"http://h.test/few?a={number}&b")
    assert not view.rows(VARIANTS)
    for number in range(99):
        variants.add("c", f"http://h.test/many?a={number}&b")
    assert 1 == len(view.rows(VARIANTS))
    reopened = make_variants(view, 320)
    left = 0
    while reopened.refusal("c", f"http://h.test/many?a={left}&b") is None:
        reopened.add("c", f"http://h.test/many?a={left}&b")
        left += 1
    assert 320 - 90 == left


@pytest.mark.parametrize(
    "paths", [[f"/p?sid={HASH}"], [f"/p?id={number}&view=1" for number in range(3)]], ids=["session", "queries"]
)
def test_what_was_counted_is_claimed_again_after_the_horizon(paths):
    """The counts outlived the memory of the URLs they had counted: a site's own pages became a trap in time."""
    bench = Bench(make_stage(delay_s=0, seen_horizon_s=86_400, max_queries_per_path=3))
    for _ in range(4):
        bench.links([f"http://h.test{path}" for path in paths])
        given = bench.emitted()
        assert len(paths) == len(given)
        for lane in given:
            bench.outcome(lane, "FETCHED")
        for _ in range(3):
            bench.tick(86_400)
        bench.reopen()


def test_a_trap_stays_one_within_the_horizon():
    """However many days it is tried on, a path has its limit of queries once in a horizon."""
    bench = Bench(make_stage(delay_s=0, seen_horizon_s=3 * 86_400, max_queries_per_path=2))
    given = []
    for day in range(8):
        bench.links([f"http://h.test/p?a={day}&b={number}" for number in range(5)])
        given.append(len(bench.urls()))
        bench.tick(86_400)
    assert [2, 0, 0, 0, 2, 0, 0, 0] == given


def test_a_calendar_that_always_has_a_next_month_comes_to_an_end():
    """It is followed two years ahead, and the rest of the site is crawled."""

    def site(url: str) -> Page:
        if not url.startswith("http://h.test/events"):
            return Page(links=["/events/2023/11/"])
        year, month = map(int, url.split("/")[4:6])
        following = (year, month + 1) if month < 12 else (year + 1, 1)
        return Page(links=[f"/events/{following[0]}/{following[1]:02}/"])

    world = World(site, delay_s=0)
    world.submit("http://h.test/")
    world.run()
    assert 1 + 26 == len(world.fetched)
    assert 1 == sum(row["refused"].get("calendar", 0) for row in world.progress.values())

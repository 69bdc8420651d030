"""What the benchmark compares with must do the same work on the same site, and its figures must be its own."""

from __future__ import annotations

import json

import pytest

from bench.calibration import calibrate, reference_work
from bench.origin import Origin

pytest.importorskip("scrapy", reason="the extra 'bench' is not installed")


@pytest.fixture(scope="module")
def origin():
    """A small site of the benchmark's kind."""
    with Origin(hosts=30, pages=3) as origin:
        yield origin


def test_scrapy_brings_every_page_with_its_text(origin, tmp_path):
    """A peer that gives up half-way, or writes empty documents, is no peer."""
    from bench.scrapy_peer import run_scrapy  # noqa: PLC0415 - only where Scrapy is installed

    output = tmp_path / "documents.jsonl"
    result = run_scrapy(origin.web.start_urls, output=output, timeout_s=120)
    documents = [json.loads(row) for row in output.read_text(encoding="utf-8").splitlines()]
    assert origin.web.expected_documents() == {document["url"]: document["title"] for document in documents}
    assert 90 == result.pages == len(documents)
    assert all(len(document["text"]) > 2_000 for document in documents)
    assert 0 < result.cpu_s < result.total_cpu_s
    assert 0 < result.wall_s < result.total_wall_s
    assert result.cpu_s_per_1000_pages == pytest.approx(result.cpu_s / 90 * 1000)
    assert result.peak_rss_bytes > 20 << 20


def test_a_run_of_scrapy_that_fails_shows_its_log(origin):
    """A figure from a crash would flatter us."""
    from bench.scrapy_peer import run_scrapy  # noqa: PLC0415 - only where Scrapy is installed

    with pytest.raises(RuntimeError, match="Traceback"):
        run_scrapy(origin.web.start_urls, concurrency="many", timeout_s=60)  # type: ignore[arg-type]


def test_the_origin_counts_what_it_spends_on_requests_alone(origin):
    """Making 44 KB pages costs more than sending them, and is nobody's crawl."""
    origin.reset()
    assert origin.cpu_s() < 0.1
    assert origin.log.exists()


def test_the_calibration_always_does_the_same_work():
    """Figures of two machines are divided by it, for years."""
    assert 955_362 == reference_work()
    result = calibrate(rounds=3)
    assert 0 < result.best_s <= result.median_s

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest
import uvloop

from pipeline.errors import BugError, ConfigurationError, InputError
from pipeline.parse import pool as pool_module
from pipeline.parse.frames import ParseFailure
from pipeline.parse.pool import WINDOW, ParsePool

COMMAND = (sys.executable, "-m", "tests.unit.faulty_parse_worker")
LIMIT_S = 30.0
GOOD = tuple(b"page %d" % number for number in range(2 * WINDOW))


@contextlib.asynccontextmanager
async def running(command=COMMAND, **options):
    """A started pool; the whole story has a bounded time."""
    async with asyncio.timeout(LIMIT_S):
        pool = ParsePool(command, **options)
        await pool.start()
        try:
            yield pool
        finally:
            await pool.stop()


async def parse_all(pool, *values):
    """Results or errors of pages that are under way together."""
    return await asyncio.gather(*(pool.parse(value, 4, 17) for value in values), return_exceptions=True)


def texts(results):
    """Values of the first outputs."""
    return [outputs[0].value for outputs in results]


def shouted(*values):
    """What good pages come back as."""
    return [value.upper() + b"@17" for value in values]


def descriptors_of(pid):
    """What a process holds open, by number."""
    return {entry.name: str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    """Both event loops that a worker may run on: their transports differ."""
    return request.param


async def test_outputs_come_back_as_the_worker_made_them():
    """Topic, key, partition and value decide where a record goes; a tombstone's missing value is an empty one here."""
    async with running() as pool:
        first, second = await pool.parse(b"page", 4, 17)
        assert ("t", b"PAGE@17", b"%d" % pool.pids[0], 4) == first[:4]
        assert ("u", b"", None, -1) == second[:4]


async def test_more_pages_than_the_window_holds_all_come_back():
    """Pages wait in the pool, not in the pipe, and none is forgotten there."""
    async with running() as pool:
        assert shouted(*GOOD) == texts(await parse_all(pool, *GOOD))


async def test_an_input_error_crosses_with_reason_field_and_message():
    """The dead letter's headers are made of them."""
    async with running() as pool:
        (error,) = await parse_all(pool, b"refuse")
        assert ("undecodable", "body", "body: no page") == (error.reason, error.field, str(error))


async def test_an_error_nobody_foresaw_costs_its_page_and_not_the_process():
    """It is a bug of ours, not a crash: the process goes on."""
    async with running() as pool:
        before = pool.pids
        error, good = await parse_all(pool, b"boom", b"page")
        assert isinstance(error, ParseFailure)
        assert "ZeroDivisionError" == error.error
        assert before == pool.pids == [int(good[0].key)]


@pytest.mark.parametrize(
    ("run", "page", "cause"),
    [
        (asyncio.run, b"segfault", "SIGSEGV"),
        (uvloop.run, b"segfault", "SIGSEGV"),
        (asyncio.run, b"exit", "status 3"),
        (asyncio.run, b"memory", "memory"),
        (asyncio.run, b"hang", "longer than 0.5 s"),
    ],
)
def test_a_page_that_ends_the_process_is_a_parse_crash_and_the_others_are_parsed(run, page, cause):
    """The promise of disposable processes: nobody else's problem."""

    async def story():
        async with running(time_limit_s=0.5) as pool:
            error, *others = await parse_all(pool, page, *GOOD)
            assert isinstance(error, InputError)
            assert "parse_crash" == error.reason
            assert cause in str(error)
            assert shouted(*GOOD) == texts(others)
            assert pool_module.ATTEMPTS == pool.crashes

    run(story())


async def test_a_page_whose_process_was_killed_from_outside_is_parsed(tmp_path):
    """The kernel's OOM killer picks a process for reasons of its own; the page it was at must not be lost."""
    async with running() as pool:
        page = b"die-once:%s" % os.fsencode(tmp_path / "died")
        assert shouted(page, *GOOD) == texts(await parse_all(pool, page, *GOOD))
        assert 1 == pool.crashes


async def test_a_process_that_dies_idle_is_replaced():
    """Nothing was under way, so nothing is suspect."""
    async with running() as pool:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGKILL)
        (good,) = await parse_all(pool, b"page")
        assert good[0].value == b"PAGE@17"


async def test_the_time_limit_counts_from_the_turn_of_a_page():
    """Six pages wait in a process's pipe: the sixth must not pay for the five before it."""
    async with running(time_limit_s=1.0) as pool:
        pages = [b"slow:0.2"] * WINDOW
        assert shouted(*pages) == texts(await parse_all(pool, *pages))
        assert 0 == pool.crashes


async def test_answers_that_wait_while_the_loop_is_held_up_are_no_timeouts():
    """A stage that was stopped and continued finds its answers in the pipe; they are in time."""
    async with running(time_limit_s=0.2) as pool:
        tasks = [asyncio.ensure_future(pool.parse(page, 4, 17)) for page in GOOD]
        await asyncio.sleep(0)
        pool._serving[0]._turn_started -= 10.0
        assert shouted(*GOOD) == texts(await asyncio.gather(*tasks))
        assert 0 == pool.crashes


def test_a_process_is_replaced_after_its_pages_and_none_is_lost(run):
    """Leaks of a C library end with its process."""

    async def story():
        async with running(recycle_pages=5) as pool:
            pages = [b"page %d" % number for number in range(13)]
            results = await parse_all(pool, *pages)
            assert shouted(*pages) == texts(results)
            pids = [outputs[0].key for outputs in results]
            assert 5 == max(pids.count(pid) for pid in pids)
            assert 2 == pool.recycled
            assert 0 == pool.crashes

    run(story())


async def test_the_successor_of_an_old_process_is_started_before_it_is_needed():
    """Else every page waits while a process starts."""
    async with running(recycle_pages=5) as pool:
        await pool.parse(b"page", 0, 0)
        await asyncio.gather(*pool._starting)
        assert 1 == len(pool._standby)


async def test_several_processes_share_the_pages():
    """One busy process must not hold pages that another has time for."""
    async with running(processes=2) as pool:
        results = await parse_all(pool, *[b"slow:0.02"] * (4 * WINDOW))
        assert set(pool.pids) == {int(outputs[0].key) for outputs in results}


async def test_a_page_that_is_cancelled_while_it_waits_is_not_parsed(tmp_path):
    """Its partition is another worker's now, which parses it."""
    async with running(time_limit_s=5.0) as pool:
        tasks = [asyncio.ensure_future(pool.parse(b"slow:0.02", 4, 17)) for _ in range(WINDOW)]
        file = tmp_path / "parsed"
        waiting = asyncio.ensure_future(pool.parse(b"die-once:%s" % os.fsencode(file), 4, 17))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(*tasks)
        assert shouted(b"page") == texts([await pool.parse(b"page", 4, 17)])
        assert not file.exists()


async def test_a_page_that_is_cancelled_under_way_disturbs_no_other():
    """Its answer comes all the same, and must not be taken for another page's."""
    async with running() as pool:
        first = asyncio.ensure_future(pool.parse(b"slow:0.02", 4, 17))
        second = asyncio.ensure_future(pool.parse(b"page", 4, 17))
        await asyncio.sleep(0)
        first.cancel()
        assert b"PAGE@17" == (await second)[0].value


async def test_stopping_ends_the_processes_and_what_is_under_way():
    """A worker that is told to end must not wait for a page that hangs."""
    async with running() as pool:
        (pid,) = pool.pids
        task = asyncio.ensure_future(pool.parse(b"hang", 4, 17))
        await asyncio.sleep(0)
        await pool.stop()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(BugError, match="stopped"):
            await pool.parse(b"page", 4, 17)


async def test_what_a_library_prints_does_not_stand_between_answers():
    """A warning on standard output would be read as the length of a frame."""
    async with running() as pool:
        assert shouted(b"print", b"page") == texts(await parse_all(pool, b"print", b"page"))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_worker_process_holds_no_descriptor_of_its_parent(loop):
    """A broker's socket that a child keeps open looks alive after the parent has died."""

    async def story():
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        try:
            async with running() as pool:
                await pool.parse(b"page", 0, 0)
                held = descriptors_of(pool.pids[0])
                assert 4 == len(held), "three standard ones, and the answers'"
                assert descriptors_of("self")[str(writer)] not in held.values()
        finally:
            os.close(reader)
            os.close(writer)

    (asyncio if loop == "asyncio" else uvloop).run(story())


@pytest.mark.parametrize("command", [("/nonexistent/python",), (sys.executable, "-c", "raise SystemExit(1)")])
async def test_a_command_that_does_not_start_is_the_operators_matter(command):
    """A worker that begins to read without being able to parse would send its topic to the dead letters."""
    with pytest.raises(ConfigurationError):
        await ParsePool(command).start()


async def test_workers_that_no_longer_start_end_the_stage(tmp_path):
    """Waiting for ever would hold the partition silently; the worker is started anew by whoever watches it."""
    once = tmp_path / "started"
    code = (
        "import pathlib, runpy, sys; once = pathlib.Path(sys.argv.pop(1)); once.exists() and sys.exit(1); once.touch();"
        " runpy.run_module('tests.unit.faulty_parse_worker', run_name='__main__')"
    )
    async with running((sys.executable, "-c", code, str(once))) as pool:
        with pytest.raises(BugError, match="status 1"):
            await pool.parse(b"exit", 4, 17)

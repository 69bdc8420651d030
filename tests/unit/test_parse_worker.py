from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from pipeline import topics
from pipeline.parse import frames
from pipeline.parse.pool import WORKER_ENVIRONMENT
from tests.unit.parse_pages import page_value

FAULTY = ("-m", "tests.unit.faulty_parse_worker")
REAL = (
    "-m", "pipeline.parse.worker", "--partitions", "6", "--agent", "headrace", "--max-url-bytes", "2048",
    "--memory-limit-bytes", str(256 << 20), "--time-limit-s", "20",
)  # fmt: skip
LIMIT_S = 30.0


@contextlib.contextmanager
def worker(*arguments):
    """A worker process that has said it is ready."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **WORKER_ENVIRONMENT},
    ) as process:
        try:
            assert frames.READY == answer(process)
            yield process
        finally:
            process.kill()


def answer(process):
    """The next frame."""
    (length,) = frames.LENGTH.unpack(process.stdout.read(frames.LENGTH.size))
    return process.stdout.read(length)


def ask(process, value):
    """Send a page."""
    process.stdin.write(frames.request(value, 4, 17))
    process.stdin.flush()


def test_a_page_record_becomes_finished_records():
    """What comes back is written to the topics as it is."""
    with worker(*REAL) as process:
        ask(process, page_value(b"<title>T</title><a href=/x>x</a>"))
        outputs = frames.read_answer(answer(process))
    assert [topics.LINKS.name, topics.DOCUMENTS.name, topics.PARSED.name] == [output.topic for output in outputs]
    assert [None, b"n.test", b"n.test"] == [output.key for output in outputs]


def test_a_page_too_large_for_the_memory_allowed_ends_the_process_with_its_status():
    """The parent takes it for a crash of that page, and the machine keeps its memory."""
    with worker(*REAL) as process:
        ask(process, page_value(b"<p>x<b>" * (6 << 20)))
        assert b"" == process.stdout.read()
        assert frames.MEMORY_EXIT_STATUS == process.wait(LIMIT_S)


def test_a_worker_ends_with_its_input():
    """A parent that was killed closes the pipe; nothing may be left behind."""
    with worker(*FAULTY) as process:
        process.stdin.close()
        assert 0 == process.wait(LIMIT_S)


def test_a_worker_whose_parent_is_gone_ends_in_the_middle_of_a_page():
    """It does not read its input then; the kernel's alarm ends it."""
    with worker(*FAULTY, "--time-limit-s", "0.05") as process:
        ask(process, b"hang")
        process.stdin.close()
        assert -signal.SIGALRM == process.wait(LIMIT_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_does_not_end_a_worker(number):
    """Ctrl-C and service managers signal every process; pages under way must be finished, not crash."""
    with worker(*FAULTY) as process:
        process.send_signal(number)
        ask(process, b"page")
        assert b"PAGE@17" == frames.read_answer(answer(process))[0].value


def test_a_worker_imports_no_client_of_broker_or_web():
    """They take memory and time at each start, and may open what must not be held here."""
    clients = "{'confluent_kafka', 'aiokafka', 'faust', 'httpx', 'aiohttp', 'rocksdict'}"
    code = f"import sys, pipeline.parse.worker; sys.exit(', '.join({clients} & set(sys.modules)) or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=LIMIT_S)
    assert (0, b"") == (result.returncode, result.stderr)

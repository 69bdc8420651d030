"""The worker process of the parse stage: page records in, finished records out.

Run by `pipeline.parse.pool` as `python -m pipeline.parse.worker`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline.contracts import load_codec
from pipeline.parse.content import Options
from pipeline.parse.disposable import serve
from pipeline.parse.document import PageReader
from pipeline.process import calm_garbage_collection


def main(arguments: list[str] | None = None) -> None:
    """Run a worker; the arguments are those that `pipeline.parse.stage.worker_command` writes."""
    parser = argparse.ArgumentParser(prog="pipeline.parse.worker", description=__doc__)
    parser.add_argument("--partitions", type=int, required=True, help="partitions of every topic")
    parser.add_argument("--lock", type=Path, help="lock file of the registry; none: the built-in one")
    parser.add_argument("--agent", required=True, help="our product token in robots directives")
    parser.add_argument("--max-url-bytes", type=int, required=True, help="longer URLs are refused")
    parser.add_argument("--memory-limit-bytes", type=int, required=True, help="address space beyond the start")
    parser.add_argument("--time-limit-s", type=float, required=True, help="for one page")
    given = parser.parse_args(arguments)
    reader = PageReader(
        load_codec(given.lock),
        partitions=given.partitions,
        options=Options(agent=given.agent, max_url_bytes=given.max_url_bytes),
    )
    calm_garbage_collection()
    serve(reader.outputs, memory_limit_bytes=given.memory_limit_bytes, time_limit_s=given.time_limit_s)


if __name__ == "__main__":
    main(sys.argv[1:])

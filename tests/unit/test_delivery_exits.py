from __future__ import annotations

import resource
import subprocess
import sys
import time

from pipeline.delivery.exits import ExitCode

END_S = 20.0


def test_a_watchdog_ends_the_process_also_where_its_last_word_finds_no_room(tmp_path):
    """A full disk is often the log's, too: a worker that hangs must not live on because it can't say why it ends."""
    code = (
        "import time\n"
        "from pipeline.delivery.exits import ExitCode, exit_unless_done\n"
        f"with exit_unless_done(0.0, 'too long', ExitCode.BROKER): time.sleep({END_S})\n"
    )
    began_s = time.monotonic()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", code], stderr=log)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        assert ExitCode.BROKER == process.wait(END_S)
    assert time.monotonic() - began_s < END_S
    assert b"" == (tmp_path / "log").read_bytes()

"""Run a server as a child and end it when the process that wants it is gone, however that one went.

Started by `pipeline.local.server` as a script of its own: `guard.py PARENT_PID COMMAND…`. It needs no clean-up by
the parent (which may be killed), no thread of it (a death signal is bound to the thread that forked) and no pipe
(which forked children would hold open): it looks whether it has been handed to another parent. Only the standard
library, no `pipeline`: it stays small.

The first line on standard output is the server's process id. SIGTERM asks the server to stop, SIGUSR1 kills it. The
guard ends after the server, never before, with its exit status (128 + signal).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

LOOK_S = 0.5
GRACE_S = 10.0
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_the_guard() -> None:
    """In the child: be killed should the guard itself be (Linux; the guard has one thread, so the signal is sound)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(parent: int, command: list[str]) -> int:
    """Run `command` until it ends, and not longer than `parent` lives."""
    # Inherited descriptors are handed on: the lock on the directory lives exactly as long as the server.
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        close_fds=False,
        preexec_fn=die_with_the_guard,  # noqa: PLW1509 - the guard has one thread
    )
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    signal.signal(signal.SIGUSR1, lambda *_: server.kill())
    print(server.pid, flush=True)  # noqa: T201 - read by the parent
    abandoned_at: float | None = None
    while True:
        try:
            code = server.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            if abandoned_at is None and os.getppid() != parent:
                abandoned_at = time.monotonic()
                server.terminate()
            elif abandoned_at is not None and time.monotonic() - abandoned_at > GRACE_S:
                server.kill()
        else:
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))

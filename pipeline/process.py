"""What a long-running process sets for itself at its start."""

from __future__ import annotations

import gc
import resource

GENERATION_0_OBJECTS = 20_000
GENERATION_1_ROUNDS = 20
GENERATION_2_ROUNDS = 50


def calm_garbage_collection() -> None:
    """Collect less often, and never what was there from the start.

    Records are trees of short-lived objects without cycles. The interpreter's threshold of 700 new objects would look
    through all of them, and now and then through every imported module, to find nothing. To be called when everything
    is imported.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_ROUNDS, GENERATION_2_ROUNDS)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets this process have: each connection that is kept is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

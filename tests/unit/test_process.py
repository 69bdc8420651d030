from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import gc, json, resource
from pipeline.process import calm_garbage_collection, raise_file_limit
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, hard), hard))
raise_file_limit()
calm_garbage_collection()
print(json.dumps([resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_freeze_count() > 0, gc.get_threshold()[0], hard]))
"""


def test_a_process_takes_all_files_and_leaves_its_imports_to_themselves():
    """Kept connections are open files; what was imported never becomes garbage."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60)
    limits, frozen, threshold, hard = json.loads(done.stdout)
    assert ([hard, hard], True) == (limits, frozen)
    assert threshold > 700

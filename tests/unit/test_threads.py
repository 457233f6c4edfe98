"""Errands: calls that can be interrupted."""

from __future__ import annotations

import subprocess
import sys

INTERRUPTED_THEN_TRACED = """
import sys
from duly.runtime.threads import Errand

def deliver(value, failure):
    print(type(failure).__name__)

errand = Errand(lambda: errand.interrupt(), deliver)
errand.perform()
sys.settrace(lambda frame, event, argument: None)
(lambda: print("traced"))()
"""


def test_what_was_interrupted_leaves_nothing_behind_in_the_interpreter() -> None:
    """Python 3.11 would stand still at the first function that a debugger or coverage traces."""
    process = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_THEN_TRACED],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert process.stdout.split() == ["TimeLimitExceeded", "traced"]

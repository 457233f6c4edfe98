"""The programs in the examples folder run, and check what they say themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples"
PROGRAMS = [path for path in sorted(FOLDER.glob("*.py")) if not path.name.startswith("tour")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_it_runs(program: Path, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout

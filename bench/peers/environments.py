"""An environment for each peer, made once and kept outside the repository."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ENVIRONMENT_VARIABLE = "DULY_BENCH_CACHE"
PATIENCE = 600.0


class Unavailable(Exception):
    """A peer cannot be measured here; the message says why."""


def cache() -> Path:
    """The folder that environments are kept in: $DULY_BENCH_CACHE, else the user's cache."""
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "duly-bench"


def python_with(name: str, requirements: tuple[str, ...]) -> Path:
    """The interpreter of an environment with these packages; made when there is none."""
    wanted = "\n".join([sys.version, *requirements])
    digest = hashlib.sha256(wanted.encode()).hexdigest()[:12]
    folder = cache() / f"{name.lower()}-{digest}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", *requirements])
        complete.touch()
    return python


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.SubprocessError) as problem:
        said = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()
        raise Unavailable(f"its environment cannot be made: {said[-1] if said else ''}") from None

"""Noticing that the code has changed, for development."""

from __future__ import annotations

import asyncio
from pathlib import Path

LOOK_EVERY = 0.5
PASSED_OVER = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})


Times = dict[Path, int]


async def changed_file(folder: Path, before: Times) -> str:
    """Wait until a Python file below the folder is not as it was, appears or vanishes; answers
    which."""
    while True:
        await asyncio.sleep(LOOK_EVERY)
        after = await asyncio.to_thread(file_times, folder)
        if after != before:
            changed = {path for path, _ in before.items() ^ after.items()}
            return str(min(changed).relative_to(folder))


def file_times(folder: Path) -> Times:
    """When each Python file below the folder was written last."""
    found = {}
    for path in folder.rglob("*.py"):
        if PASSED_OVER.isdisjoint(path.relative_to(folder).parts):
            try:
                found[path] = path.stat().st_mtime_ns
            except FileNotFoundError:
                continue
    return found

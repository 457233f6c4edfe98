"""A scheduler whose clock is a file: `python -m tests.support.scheduler_process URL FILE`.

The file holds the virtual time in ISO 8601; the process ends when the file is gone.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path

from duly import App
from duly.errors import StoreError
from duly.runtime.scheduler import Scheduler

PAUSE = 0.003


async def serve(url: str, file: Path) -> None:
    """Tick by the file's clock until the file is gone."""
    app = App(url, pool_size=2)
    scheduler = Scheduler(app.store, lambda: read(file))
    while True:
        try:
            pause = await scheduler.tick()
        except FileNotFoundError:
            break
        except StoreError as error:
            print(error, file=sys.stderr)
            pause = PAUSE
        await asyncio.sleep(min(pause, PAUSE))
    app.close()


def read(file: Path) -> datetime:
    """The virtual time."""
    return datetime.fromisoformat(file.read_text())


def write(file: Path, now: datetime) -> None:
    """Set the virtual time; a reader sees the old one or the new one."""
    fresh = file.with_suffix(".new")
    fresh.write_text(now.isoformat())
    fresh.replace(file)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))

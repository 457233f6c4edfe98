"""Progress and log lines of running jobs, on their way to the store."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from duly.errors import StoreError
from duly.model.job import JobRecord
from duly.model.report import LogLine, Progress
from duly.runtime.context import running
from duly.runtime.text import storable
from duly.store.protocol import Store

INTERVAL = 0.5
MOST_LINES = 1_000
LONGEST_LINE = 4_000

logger = logging.getLogger("duly.worker")


class LogCapture(logging.Handler):
    """Hands the lines that jobs log to `sink`, at most MOST_LINES an attempt.

    Lines logged outside a job, and Duly's own, are left alone.
    """

    def __init__(self, sink: Callable[[LogLine], None]) -> None:
        super().__init__()
        self._sink = sink
        self._lines: Counter[tuple[UUID, int]] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """See logging.Handler."""
        context = running.get()
        if context is None or record.name.startswith("duly."):
            return
        attempt = (context.job.id, context.job.token)
        self._lines[attempt] += 1
        if self._lines[attempt] > MOST_LINES:
            return
        last = self._lines[attempt] == MOST_LINES
        try:
            message = "further lines are not kept" if last else record.getMessage()
        except Exception:
            self.handleError(record)
            return
        self._sink(
            LogLine(
                job_id=attempt[0],
                token=attempt[1],
                at=datetime.fromtimestamp(record.created, UTC),
                level=record.levelname,
                logger=storable(record.name),
                message=storable(message[:LONGEST_LINE]),
            )
        )

    def forget(self, job: JobRecord) -> None:
        """The attempt is over."""
        if self._lines:
            self._lines.pop((job.id, job.token), None)


class Reporter:
    """Collects from any thread, writes now and then from the worker's event loop.

    What cannot be written is dropped: a report is not worth a job's time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._progress: dict[UUID, Progress] = {}
        self._lines: list[LogLine] = []
        self.capture = LogCapture(self.line)

    def capture_logs(self) -> None:
        """Listen to the root logger."""
        logging.getLogger().addHandler(self.capture)

    def release_logs(self) -> None:
        """Stop listening."""
        logging.getLogger().removeHandler(self.capture)

    def progress(self, job: JobRecord, fraction: float, message: str) -> None:
        """Note how far a job is; only the latest word is written."""
        entry = Progress(
            job.id,
            job.token,
            fraction,
            storable(message[:LONGEST_LINE]),
            datetime.now(UTC),
        )
        with self._lock:
            self._progress[job.id] = entry

    def line(self, line: LogLine) -> None:
        """Note a log line."""
        with self._lock:
            self._lines.append(line)

    async def tick(self) -> float:
        """Write what has come in; see Loop."""
        await self.flush()
        return INTERVAL

    async def flush(self) -> None:
        """Write what has come in."""
        if not self._progress and not self._lines:
            return
        with self._lock:
            progress, self._progress = list(self._progress.values()), {}
            lines, self._lines = self._lines, []
        try:
            await self._store.arun(self._store.report(progress, lines))
        except StoreError as error:
            logger.warning("reports of %d jobs were dropped: %s", len(progress), error)

"""Progress and log lines on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.model.report import LogLine, Progress
from duly.store.operation import Operation, Statement, Steps
from duly.store.sqlite.rows import micros, moment

PROGRESS = (
    "INSERT INTO progress (job_id, token, fraction, message, at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (job_id) DO UPDATE SET token = excluded.token, fraction = excluded.fraction,"
    " message = excluded.message, at = excluded.at WHERE token <= excluded.token"
)
LINE = "INSERT INTO log_lines (job_id, token, at, level, logger, message) VALUES (?, ?, ?, ?, ?, ?)"
READ_PROGRESS = "SELECT job_id, token, fraction, message, at FROM progress WHERE job_id = ?"
READ_LINES = (
    "SELECT job_id, token, at, level, logger, message FROM log_lines WHERE job_id = ?"
    " ORDER BY number"
)


def _report(progress: Sequence[Progress], lines: Sequence[LogLine]) -> Steps[None]:
    yield Statement(
        PROGRESS,
        [
            (each.job_id.bytes, each.token, each.fraction, each.message, micros(each.at))
            for each in progress
        ],
        many=True,
    )
    yield Statement(
        LINE,
        [
            (line.job_id.bytes, line.token, micros(line.at), line.level, line.logger, line.message)
            for line in lines
        ],
        many=True,
    )


def _progress(job_id: UUID) -> Steps[Progress | None]:
    rows = yield Statement(READ_PROGRESS, (job_id.bytes,))
    if not rows:
        return None
    _, token, fraction, message, at = rows[0]
    return Progress(job_id, token, fraction, message, moment(at))


def _log_lines(job_id: UUID) -> Steps[list[LogLine]]:
    rows = yield Statement(READ_LINES, (job_id.bytes,))
    return [
        LogLine(job_id, token, moment(at), level, logger, message)
        for _, token, at, level, logger, message in rows
    ]


class Reports:
    """The verbs about what jobs say of themselves."""

    def report(self, progress: Sequence[Progress], lines: Sequence[LogLine]) -> Operation[None]:
        return Operation(lambda: _report(progress, lines))

    def progress(self, job_id: UUID) -> Operation[Progress | None]:
        return Operation(lambda: _progress(job_id), writes=False)

    def log_lines(self, job_id: UUID) -> Operation[list[LogLine]]:
        return Operation(lambda: _log_lines(job_id), writes=False)

"""Progress and log lines on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.model.report import LogLine, Progress
from duly.store.operation import Operation, Statement, Steps
from duly.store.postgres.rows import InSchema, utc

PROGRESS = """
INSERT INTO {schema}.progress (job_id, token, fraction, message, at)
SELECT * FROM unnest(%(jobs)s::uuid[], %(tokens)s::integer[], %(fractions)s::float8[],
    %(messages)s::text[], %(moments)s::timestamptz[]) AS told (job_id, token, fraction, message, at)
ORDER BY job_id
ON CONFLICT (job_id) DO UPDATE SET token = excluded.token, fraction = excluded.fraction,
    message = excluded.message, at = excluded.at
WHERE progress.token <= excluded.token
"""
LINES = """
INSERT INTO {schema}.log_lines (job_id, token, at, level, logger, message)
SELECT * FROM unnest(%(jobs)s::uuid[], %(tokens)s::integer[], %(moments)s::timestamptz[],
    %(levels)s::text[], %(loggers)s::text[], %(messages)s::text[])
"""
READ_PROGRESS = "SELECT token, fraction, message, at FROM {schema}.progress WHERE job_id = %(job)s"
READ_LINES = """
SELECT token, at, level, logger, message FROM {schema}.log_lines
WHERE job_id = %(job)s ORDER BY number
"""


class Reports(InSchema):
    """The verbs about what jobs say of themselves."""

    def report(self, progress: Sequence[Progress], lines: Sequence[LogLine]) -> Operation[None]:
        return Operation(lambda: self._report(progress, lines))

    def progress(self, job_id: UUID) -> Operation[Progress | None]:
        return Operation(lambda: self._progress(job_id), writes=False, atomic=False)

    def log_lines(self, job_id: UUID) -> Operation[list[LogLine]]:
        return Operation(lambda: self._log_lines(job_id), writes=False, atomic=False)

    def _report(self, progress: Sequence[Progress], lines: Sequence[LogLine]) -> Steps[None]:
        # Of several about one job the last counts; no statement may touch a row twice.
        progress = list({each.job_id: each for each in sorted(progress, key=_order)}.values())
        if progress:
            yield Statement(
                self.text(PROGRESS),
                {
                    "jobs": [each.job_id for each in progress],
                    "tokens": [each.token for each in progress],
                    "fractions": [each.fraction for each in progress],
                    "messages": [each.message for each in progress],
                    "moments": [each.at for each in progress],
                },
            )
        if lines:
            yield Statement(
                self.text(LINES),
                {
                    "jobs": [line.job_id for line in lines],
                    "tokens": [line.token for line in lines],
                    "moments": [line.at for line in lines],
                    "levels": [line.level for line in lines],
                    "loggers": [line.logger for line in lines],
                    "messages": [line.message for line in lines],
                },
            )

    def _progress(self, job_id: UUID) -> Steps[Progress | None]:
        rows = yield Statement(self.text(READ_PROGRESS), {"job": job_id})
        if not rows:
            return None
        token, fraction, message, at = rows[0]
        return Progress(job_id, token, fraction, message, utc(at))

    def _log_lines(self, job_id: UUID) -> Steps[list[LogLine]]:
        rows = yield Statement(self.text(READ_LINES), {"job": job_id})
        return [
            LogLine(job_id, token, utc(at), level, logger, message)
            for token, at, level, logger, message in rows
        ]


def _order(entry: Progress) -> int:
    """A later claim's word is the later one."""
    return entry.token

"""Log lines of worker processes, for people and for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from duly.runtime.context import running

TEXT = "text"
JSON = "json"


def configure_logs(level: int, form: str = TEXT) -> None:
    """Send log lines to standard error, unless the application has set up its own."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == JSON else TextLines())
    logging.basicConfig(level=level, handlers=[handler])


def about(job: object, task: str, attempt: int) -> dict[str, object]:
    """What a line about a job carries besides its text; to be passed as `extra`."""
    return {"job": str(job), "task": task, "attempt": attempt}


def _job_of(record: logging.LogRecord) -> dict[str, object]:
    """The job that a line is about, or that was running when it was logged."""
    if hasattr(record, "job"):
        values = vars(record)
        return {name: values.get(name) for name in ("job", "task", "attempt")}
    context = running.get()
    if context is None:
        return {}
    return about(context.job.id, context.job.task, context.job.attempt)


class TextLines(logging.Formatter):
    """Lines for people; those about a job name it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line = super().format(record)
        job = _job_of(record)
        return f"{line} [{job['task']} {job['job']} attempt {job['attempt']}]" if job else line


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **_job_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)

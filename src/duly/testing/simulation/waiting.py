"""Waiting for jobs in a simulation, where nobody works while one waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from duly.app import App
from duly.client.job import Job
from duly.client.waiting import Tell, WaitingRoom


class NoWaiting(WaitingRoom):
    """Has `serve` see to it that the job ends at once, or say why it cannot."""

    def __init__(self, app: App, serve: Callable[[Job[Any]], None]) -> None:
        super().__init__(app.store)
        self._app = app
        self._serve = serve

    def enter(self, job_id: UUID, tell: Tell) -> None:
        """See WaitingRoom.enter."""
        job = self._app.get(job_id)
        self._serve(job)
        tell((job_id, job.record))

"""A client that submits everything there is, and keeps a log of what it was told."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from duly import Job, StoreUnavailable, each
from duly.client.prepared import Prepared
from duly.testing import Emission, Submission, Told
from tests.chaos.mixed_tasks import HOSTILE
from tests.support.fleet import Fleet


class Client:
    """Submits, emits, cancels, and writes down the answers."""

    def __init__(self, site: Fleet, chance: random.Random) -> None:
        self._site = site
        self._app = site.app
        self._tasks: Any = site.tasks
        self._chance = chance
        self._number = 0
        self.submissions: list[Submission] = []
        self.emissions: list[Emission] = []
        self.flows: list[UUID] = []
        self.told: Counter[Told] = Counter()
        self._jobs: list[Job[Any]] = []

    def act(self, jobs: int) -> None:
        """Some of everything."""
        self._submit([self._any() for _ in range(jobs)])
        if self._chance.random() < 0.5:
            self._flow()
        self._emit("paid" if self._chance.random() < 0.3 else "go")
        if self._jobs and self._chance.random() < 0.5:
            self._ask(self._chance.choice(self._jobs).cancel)

    def be_hostile(self) -> None:
        """A job that harms whatever runs it."""
        self._submit([self._tasks.hostile.job(self._chance.choice(HOSTILE))])

    def _any(self) -> Prepared[Any]:
        self._number += 1
        tasks, chance, number = self._tasks, self._chance, self._number
        kinds = [tasks.block, tasks.wait, tasks.once, tasks.pay, tasks.stepped, tasks.parent]
        kinds += [tasks.slow, tasks.alone]
        task = chance.choices(kinds, weights=[6, 6, 2, 3, 2, 1, 2, 0.3])[0]
        options: dict[str, Any] = {"priority": chance.choice([1, 5, 5, 10, 20])}
        kind = chance.random()
        if kind < 0.2:
            options["delay"] = chance.uniform(0.01, 3.0)
        elif kind < 0.3:
            options["key"] = f"key-{chance.randrange(4)}"
            if chance.random() < 0.5:
                options["key_window"] = chance.uniform(0.1, 1.0)
        elif kind < 0.35:
            options["expires"] = chance.uniform(0.5, 3.0)
        prepared: Prepared[Any] = task.using(**options).job(number)
        return prepared

    def _submit(self, prepared: list[Prepared[Any]]) -> None:
        submitted: list[Job[Any]] | None
        told, submitted = self._ask(lambda: self._app.enqueue_many(prepared))
        if submitted is not None:
            self._jobs = [*self._jobs[-200:], *submitted]
            self.submissions += [
                Submission(job_id=job.id, key=job.record.key, at=job.record.created_at)
                for job in submitted
            ]
        else:
            self.submissions += [
                Submission(job_id=each.draft.id, told=told, key=each.draft.key) for each in prepared
            ]

    def _flow(self) -> None:
        self._number += 1
        with self._app.flow("mixed", on_failure="continue") as flow:
            rows = self._tasks.numbers.job(self._chance.randrange(1, 6))
            done = self._tasks.block.job(each(rows))
            side = self._tasks.wait.job(self._number)
            last = self._tasks.total.job(rows=done.outputs)
            side >> last
        _, run = self._ask(flow.submit)
        if run is not None:
            self.flows.append(run.id)

    def _emit(self, name: str) -> None:
        identifier = uuid.UUID(int=self._chance.getrandbits(128)).hex
        key = str(self._chance.randrange(5))
        told, _ = self._ask(lambda: self._app.emit(name, {}, key=key, id=identifier))
        self.emissions.append(Emission(event_id=identifier, told=told))

    def _ask(self, what: Callable[[], Any]) -> tuple[Told, Any]:
        """Ask, and note how that was answered."""
        told, answer = Told.OK, None
        try:
            answer = what()
        except StoreUnavailable as error:
            told = Told.UNKNOWN if error.unknown else Told.FAILED
        self.told[told] += 1
        return told, answer

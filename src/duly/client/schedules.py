"""Schedules at run time, blocking and asynchronous: `app.schedules`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack

from duly.client.client import Client
from duly.client.drafting import encode_by_schema, unknown_task
from duly.client.job import Job
from duly.client.task import NamedTask, Task
from duly.errors import UnknownTask
from duly.model.catalogue import CatalogueEntry
from duly.model.schedule import Definition, ScheduleRecord, Tick
from duly.policy import options
from duly.policy.recurrence import PreviewedFire, preview
from duly.registry import strict_json
from duly.registry.scheduling import (
    Rules,
    ScheduleOptions,
    define_schedule,
    recurrence_from,
    redefine_schedule,
)
from duly.service.schedules import Backfill
from duly.service.schedules import Schedules as UseCases
from duly.store.conversation import Conversation, converse, converse_async

T = TypeVar("T")

AnyTask = Task[..., Any] | NamedTask | str


class Schedules:
    """What a program can do with schedules while it runs. Inside a `transaction()` block
    everything is done in its transaction."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._use = UseCases(client.store)

    def add(
        self, name: str, task: AnyTask, rule: Rules, **options: Unpack[ScheduleOptions]
    ) -> ScheduleRecord:
        """Make a schedule: a task, known here or by name, and when it is to run. A task that no
        worker has published yet is given as `app.named(name, unchecked=True)`.

        `rule` is cron text (in the zone `tz`), a timedelta (fixed rate), a rule, several of these,
        or a whole Recurrence. For the options see duly.registry.scheduling.ScheduleOptions.
        """
        return self._run(self._added(name, task, rule, options))

    async def aadd(
        self, name: str, task: AnyTask, rule: Rules, **options: Unpack[ScheduleOptions]
    ) -> ScheduleRecord:
        """Make a schedule; see `add`."""
        return await self._arun(self._added(name, task, rule, options))

    def get(self, name: str) -> ScheduleRecord:
        """The schedule as it is now; UnknownSchedule when there is none."""
        return self._run(self._use.get(name))

    async def aget(self, name: str) -> ScheduleRecord:
        """The schedule as it is now; UnknownSchedule when there is none."""
        return await self._arun(self._use.get(name))

    def list(self, *, limit: int = 100, after: str | None = None) -> Sequence[ScheduleRecord]:
        """Schedules by name; for the next page pass the last one's name as `after`."""
        return self._run(self._use.page(limit, after))

    async def alist(
        self, *, limit: int = 100, after: str | None = None
    ) -> Sequence[ScheduleRecord]:
        """Schedules by name; see `list`."""
        return await self._arun(self._use.page(limit, after))

    def update(
        self, name: str, rule: Rules | None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleRecord:
        """Change the rule or the options that are given. What is owed under the old rule is done,
        the new one counts from now. Not for schedules that are declared in code."""
        return self._run(self._updated(name, rule, options))

    async def aupdate(
        self, name: str, rule: Rules | None = None, **options: Unpack[ScheduleOptions]
    ) -> ScheduleRecord:
        """Change the rule or the options that are given; see `update`."""
        return await self._arun(self._updated(name, rule, options))

    def pause(self, name: str, note: str | None = None) -> ScheduleRecord:
        """Make no more jobs until it is resumed; the ticks of that time are skipped."""
        return self._run(self._use.pause(name, note))

    async def apause(self, name: str, note: str | None = None) -> ScheduleRecord:
        """Make no more jobs until it is resumed; the ticks of that time are skipped."""
        return await self._arun(self._use.pause(name, note))

    def resume(self, name: str) -> ScheduleRecord:
        """Go on after a pause."""
        return self._run(self._use.resume(name))

    async def aresume(self, name: str) -> ScheduleRecord:
        """Go on after a pause."""
        return await self._arun(self._use.resume(name))

    def trigger(self, name: str) -> Job[Any]:
        """One job now, also while the schedule is paused."""
        return self._client.get(self._run(self._use.trigger(name)))

    async def atrigger(self, name: str) -> Job[Any]:
        """One job now, also while the schedule is paused."""
        return await self._client.aget(await self._arun(self._use.trigger(name)))

    def backfill(self, name: str, first: datetime, last: datetime) -> Backfill:
        """Jobs for the past nominal times from `first` to `last` that got none so far."""
        return self._run(self._use.backfill(name, first, last))

    async def abackfill(self, name: str, first: datetime, last: datetime) -> Backfill:
        """Jobs for the past nominal times from `first` to `last` that got none so far."""
        return await self._arun(self._use.backfill(name, first, last))

    def remove(self, name: str) -> None:
        """Delete the schedule; its jobs go on."""
        self._run(self._use.remove(name))

    async def aremove(self, name: str) -> None:
        """Delete the schedule; its jobs go on."""
        await self._arun(self._use.remove(name))

    def ticks(self, name: str, *, limit: int = 100, before: Tick | None = None) -> Sequence[Tick]:
        """What became of its ticks, latest first; for the next page pass the last one."""
        return self._run(self._use.ticks(name, limit, before))

    async def aticks(
        self, name: str, *, limit: int = 100, before: Tick | None = None
    ) -> Sequence[Tick]:
        """What became of its ticks, latest first; for the next page pass the last one."""
        return await self._arun(self._use.ticks(name, limit, before))

    def preview(
        self,
        rule: Rules,
        *,
        after: datetime | None = None,
        count: int = 10,
        **options: Unpack[ScheduleOptions],
    ) -> Sequence[PreviewedFire]:
        """The next times of a rule, with what DST does to them. Nothing is stored or asked."""
        start = datetime.now(UTC) if after is None else after
        return preview(recurrence_from(rule, options), start, count)

    def _run(self, conversation: Conversation[T]) -> T:
        return converse(conversation, self._client.run)

    async def _arun(self, conversation: Conversation[T]) -> T:
        return await converse_async(conversation, self._client.arun)

    def _added(
        self, name: str, task: AnyTask, rule: Rules, given: ScheduleOptions
    ) -> Conversation[ScheduleRecord]:
        unchecked = isinstance(task, NamedTask) and task.unchecked
        entry = yield from self._entry(task if isinstance(task, str) else task.name, unchecked)
        arguments = self._encoded(entry, given)
        definition = define_schedule(entry, arguments, rule, given)
        return (yield from self._use.add(name, definition))

    def _updated(
        self, name: str, rule: Rules | None, given: ScheduleOptions
    ) -> Conversation[ScheduleRecord]:
        arguments = None
        if "arguments" in given:
            schedule = yield from self._use.get(name)
            entry = yield from self._entry(schedule.definition.task)
            arguments = self._encoded(entry, given)

        def define(definition: Definition) -> Definition:
            return redefine_schedule(definition, rule, given, arguments)

        return (yield from self._use.update(name, define))

    def _entry(self, name: str, unchecked: bool = False) -> Conversation[CatalogueEntry]:
        local = self._client.registry.get(options.task(name))
        if local is not None:
            return local.catalogued()
        entries = yield self._client.store.catalogue()
        for entry in entries:
            if entry.name == name:
                assert isinstance(entry, CatalogueEntry)
                return entry
        if unchecked:
            return unknown_task(name)
        known = ", ".join(entry.name for entry in entries) or "none yet"
        raise UnknownTask(
            name, f"it is not registered here and no worker has published it: {known}"
        )

    def _encoded(self, entry: CatalogueEntry, given: ScheduleOptions) -> str:
        arguments = given.get("arguments", {})
        local = self._client.registry.get(entry.name)
        if local is not None:
            encoded = local.arguments.encode_object(arguments)
        else:
            encoded = encode_by_schema(entry, arguments)
        limit = self._client.config.payload_limit
        strict_json.check_size(encoded, f"the arguments of task {entry.name!r}", limit)
        return encoded.decode()

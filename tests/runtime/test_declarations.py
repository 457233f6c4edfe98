"""Schedules that code declares, while versions of it come and go."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from duly import App, ScheduleConflict
from duly.model.schedule import CatchUp, Definition, Overlap
from duly.policy.reconciling import GRACE, REMOVAL_GRACE
from duly.policy.recurrence import Recurrence, every
from duly.policy.schedule_changes import begun
from duly.registry.schedules import DeclaredSchedules
from duly.runtime.reconciler import Reconciler
from tests.support.timetables import MINUTE, START, Clock, add, define, drain, jobs_of


class Node:
    """A node with some version of the code."""

    def __init__(
        self, app: App, clock: Clock, application: str = "shop", **definitions: Definition
    ) -> None:
        declared = DeclaredSchedules(application)
        for name, definition in definitions.items():
            declared.add(name, definition)
        self._reconciler = Reconciler(app.store, declared, clock)

    def reconcile(self) -> None:
        asyncio.run(self._reconciler.tick())


def in_force(app: App, name: str) -> Definition | None:
    (look,) = app.store.run(app.store.look([name]))
    return None if look is None else look.schedule.definition


def test_two_versions_do_not_flap_and_a_rollback_takes_over(app: App) -> None:
    clock = Clock()
    old, new = define(), define(Recurrence((every(minutes=2),)))
    first, second = Node(app, clock, s=old), Node(app, clock, s=new)
    first.reconcile()
    assert in_force(app, "s") == old
    clock.now += timedelta(seconds=20)
    second.reconcile()
    assert in_force(app, "s") == new
    revision = app.schedules.get("s").revision
    for _ in range(6):
        clock.now += timedelta(seconds=20)
        first.reconcile()
        second.reconcile()
        assert in_force(app, "s") == new
    assert app.schedules.get("s").revision == revision, "nothing was written"
    clock.now += GRACE
    first.reconcile()
    assert in_force(app, "s") == new, "seen a minute ago"
    clock.now += timedelta(seconds=20)
    first.reconcile()
    assert in_force(app, "s") == old
    clock.now += timedelta(seconds=20)
    second.reconcile()
    assert in_force(app, "s") == new


def test_what_nobody_declares_any_more_is_removed_after_a_while(app: App) -> None:
    clock = Clock()
    Node(app, clock, gone=define(), stays=define()).reconcile()
    add(app, begun("run_time", define(), clock.now))
    rest = Node(app, clock, stays=define())
    waited = timedelta()
    while waited <= REMOVAL_GRACE:
        assert in_force(app, "gone") is not None
        clock.now += timedelta(minutes=5)
        waited += timedelta(minutes=5)
        rest.reconcile()
    assert in_force(app, "gone") is None
    assert in_force(app, "stays") is not None
    assert in_force(app, "run_time") is not None
    assert [each.schedule_id for each in app.store.run(app.store.declarations())] == ["stays"]


def test_an_application_that_is_down_finds_its_schedules_as_it_left_them(app: App) -> None:
    clock = Clock()
    every_minute = define(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    shop = Node(app, clock, invoices=every_minute)
    shop.reconcile()
    blog = Node(app, clock, "blog", feeds=define())
    for _ in range(26):
        clock.now += timedelta(hours=1)
        blog.reconcile()
    assert in_force(app, "invoices") == every_minute
    drain(app, clock)
    shop.reconcile()
    assert len(jobs_of(app, "invoices")) == 26 * 60
    assert in_force(app, "feeds") is not None


def test_an_application_removes_its_own_only(app: App) -> None:
    clock = Clock()
    Node(app, clock, "blog", feeds=define(), pings=define()).reconcile()
    Node(app, clock, gone=define(), stays=define()).reconcile()
    clock.now += REMOVAL_GRACE + MINUTE
    Node(app, clock, stays=define()).reconcile()
    assert {each.id for each in app.schedules.list()} == {"feeds", "pings", "stays"}
    Node(app, clock, "blog", feeds=define()).reconcile()
    assert {each.id for each in app.schedules.list()} == {"feeds", "stays"}


def test_two_applications_that_share_a_name(app: App, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    theirs = define(Recurrence((every(minutes=2),)))
    shop, blog = Node(app, clock, s=define()), Node(app, clock, "blog", s=theirs)
    for _ in range(3):
        shop.reconcile()
        blog.reconcile()
        clock.now += timedelta(seconds=20)
    assert in_force(app, "s") == define()
    assert app.schedules.get("s").application == "shop"
    assert caplog.text.count("the application 'shop' declares one of this name and keeps it") == 1


def test_a_renamed_application_takes_its_schedules_over(app: App) -> None:
    clock = Clock()
    Node(app, clock, s=define()).reconcile()
    revision = app.schedules.get("s").revision
    renamed = Node(app, clock, "store", s=define())
    clock.now += GRACE
    renamed.reconcile()
    assert app.schedules.get("s").application == "shop", "seen a minute ago"
    clock.now += timedelta(seconds=20)
    renamed.reconcile()
    taken_over = app.schedules.get("s")
    assert taken_over.application == "store"
    assert taken_over.revision == revision + 1
    assert taken_over.accounted_until == START


def test_a_schedule_made_at_run_time_keeps_its_name(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    mine = begun("s", define(overlap=Overlap.ALLOW), clock.now)
    add(app, mine)
    node = Node(app, clock, s=define())
    for _ in range(3):
        node.reconcile()
    assert in_force(app, "s") == mine.definition
    assert caplog.text.count("was made at run time and keeps it") == 1


def test_a_declared_schedule_is_changed_in_the_code(app: App) -> None:
    node = Node(app, Clock(datetime.now(UTC)), s=define())
    node.reconcile()
    with pytest.raises(ScheduleConflict, match="change it there"):
        app.schedules.update("s", overlap="allow")
    with pytest.raises(ScheduleConflict, match="running code declares it"):
        app.schedules.remove("s")
    app.schedules.pause("s", "holidays")
    node.reconcile()
    assert app.schedules.get("s").paused


def test_a_declared_change_accounts_for_what_was_owed(app: App) -> None:
    clock = Clock()
    minutely = define(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    slower = define(Recurrence((every(minutes=5),)), overlap=Overlap.ALLOW, catch_up=CatchUp.ALL)
    Node(app, clock, s=minutely).reconcile()
    clock.now += timedelta(minutes=10, seconds=30)
    Node(app, clock, s=slower).reconcile()
    clock.now += timedelta(minutes=10)
    drain(app, clock)
    minutes = [((job.scheduled_for or START) - START) // MINUTE for job in jobs_of(app, "s")]
    assert minutes == [*range(1, 11), 15, 20]

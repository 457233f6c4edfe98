"""What may happen twice: a submission tried again, a block entered by many, a process copied."""

from __future__ import annotations

import copy
import os
import threading
from uuid import UUID

import pytest

from duly import App, InvalidOption, State, StoreError
from duly.client import prepared as prepared_jobs


def test_a_prepared_job_is_one_job_however_often_it_is_submitted(app: App) -> None:
    ran: list[int] = []

    @app.task
    def remember(number: int) -> None:
        ran.append(number)

    prepared = remember.job(1)
    (first,) = app.enqueue_many([prepared])
    (second,) = app.enqueue_many([prepared])
    assert (second.id, second.created) == (first.id, False)
    app.run_until_idle()
    (third,) = app.enqueue_many([prepared, remember.job(2)])[:1]
    assert (third.id, third.created, third.state) == (first.id, False, State.SUCCEEDED)
    app.run_until_idle()
    assert sorted(ran) == [1, 2]
    assert len(app.list()) == 2


def test_a_prepared_job_that_was_copied_with_its_id_is_the_same_job(app: App) -> None:
    """As by a fork: neither knows what becomes of the other."""
    ran: list[int] = []

    @app.task
    def remember(number: int) -> None:
        ran.append(number)

    prepared = remember.job(1)
    assert prepared.draft.task == remember.name
    copied = copy.copy(prepared)
    (first,) = app.enqueue_many([prepared])
    app.run_until_idle()
    (second,) = app.enqueue_many([copied])
    assert (second.id, second.created, second.state) == (first.id, False, State.SUCCEEDED)
    app.run_until_idle()
    assert ran == [1]


def test_a_prepared_job_that_has_died_is_answered_with_and_not_run(app: App) -> None:
    @app.task(retries=0)
    def fail() -> None:
        raise ValueError

    prepared = fail.using(key="only").job()
    app.enqueue_many([prepared])
    app.run_until_idle()
    (again,) = app.enqueue_many([prepared])
    assert (again.created, again.state) == (False, State.DEAD)
    assert [job.state for job in app.list()] == [State.DEAD]


def test_prepared_jobs_that_two_threads_submit_at_once_are_stored_once(app: App) -> None:
    @app.task
    def work(number: int) -> None: ...

    prepared = [work.job(number) for number in range(300)]
    together = threading.Barrier(2)
    ids: list[list[UUID]] = []

    def submit() -> None:
        together.wait()
        ids.append([job.id for job in app.enqueue_many(prepared)])

    threads = [threading.Thread(target=submit) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids == [[each.draft.id for each in prepared]] * 2
    assert len(app.list(limit=1000)) == 300


def test_a_process_forked_while_ids_are_given_out_gives_out_its_own(app: App) -> None:
    @app.task
    def work() -> None: ...

    first = work.job()
    with prepared_jobs._drafting:
        child = os.fork()
        if child == 0:
            os._exit(0 if work.job().draft.id != first.draft.id else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_task_is_no_prepared_job(app: App) -> None:
    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidOption, match=r"task\.job"):
        app.enqueue_many([work])  # type: ignore[list-item]


def test_many_threads_enter_their_first_block_together(app: App) -> None:
    """None may wait for a second connection while it holds its first."""

    @app.task
    def work() -> None: ...

    together = threading.Barrier(12)
    failures: list[BaseException] = []

    def enter() -> None:
        together.wait()
        try:
            with app.transaction():
                work.enqueue()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=enter) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(app.list()) == 12


def test_a_process_forked_inside_a_block_is_refused(app: App) -> None:
    @app.task
    def work() -> None: ...

    with app.transaction():
        work.enqueue()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                work.enqueue()
            except StoreError as error:
                status = 0 if "forked inside" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(app.list()) == 1


def test_a_connection_that_is_handed_out_has_the_servers_own_planner(
    postgres_url: str,
) -> None:
    app = App(postgres_url, pool_size=1)
    app.migrate()
    with app.transaction() as connection:
        settings = connection.execute(
            "SELECT current_setting('enable_seqscan'), current_setting('enable_bitmapscan')"
        ).fetchone()
    app.close()
    assert settings == ("on", "on")

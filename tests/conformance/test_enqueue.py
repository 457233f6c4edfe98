"""What is submitted is stored as it is, all or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from duly.errors import KeyConflict, StoreError
from duly.model.attempt import Outcome
from duly.model.identifiers import new_id
from duly.model.job import Alike, Delivery, Draft, JobRecord, KeyPolicy, Priority, State
from duly.model.query import JobFilter
from tests.support.stores import Scene, draft, failure

FAR_PAST = datetime(1, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
FAR_FUTURE = datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)
HOSTILE = (
    "'; DROP TABLE jobs; --",
    "%s %(now)s {schema} ? ?1 $1 :x",
    "<script>alert('x')</script>&amp;",
    "\x1b[31mred\x1b[0m\x07\x08",
    "first\nsecond\r\nthird\ttab\x0b\x0c\x85\u2028",
    "\u202eright to left\u202c \u200f\u061c",
    "é vs e\u0301 \ufeff\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0010ffff \ufffe",
    "../../etc/passwd\\..\\",
    '"quoted" \\ {back, slash} NULL {NULL}',
    " leading and trailing ",
    "\x01\x7f",
)


def test_a_plain_job_gets_the_defaults(scene: Scene) -> None:
    (answer,) = scene.enqueue(draft(id=(job_id := new_id()), arguments='{"x":1}'))
    assert answer.created
    assert not answer.replaced
    assert answer.job == JobRecord(
        id=job_id,
        task="work",
        queue="default",
        priority=5,
        state=State.PENDING,
        run_at=scene.now,
        created_at=scene.now,
        arguments='{"x":1}',
    )
    assert scene.get(job_id) == answer.job


def test_every_field_comes_back(scene: Scene) -> None:
    given = draft(
        arguments='{"a":[1,2.5,null]}',
        queue="mail",
        priority=Priority.URGENT,
        run_at=scene.now + timedelta(days=3, microseconds=1),
        key="welcome:42",
        key_window=90.25,
        owner="billing",
        tenant="acme",
        max_attempts=7,
        max_crashes=2,
        delivery=Delivery.AT_MOST_ONCE,
        timeout=12.125,
        expires_at=scene.now + timedelta(days=4, microseconds=3),
        tags=("eu", "mail", "a,b", "{}"),
        metadata='{"trace":"00-1"}',
        parent_id=new_id(),
        flow_id=new_id(),
    )
    (answer,) = scene.enqueue(given)
    stored = scene.get(given.id)
    assert stored == answer.job
    for name in set(given.__struct_fields__) - {"delay", "expires_after", "key_policy"}:
        assert getattr(stored, name) == getattr(given, name), name
    assert stored.created_at == scene.now


def test_delay_and_expiry_count_from_the_store_s_clock(scene: Scene) -> None:
    job = scene.submit(
        delay=timedelta(seconds=90, microseconds=7),
        expires_after=timedelta(hours=1, microseconds=9),
    )
    assert job.run_at == scene.now + timedelta(seconds=90, microseconds=7)
    assert job.expires_at == scene.now + timedelta(hours=1, microseconds=9)
    assert scene.get(job.id) == job


def test_without_now_the_database_s_clock_counts(scene: Scene) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    (answer,) = scene.store.run(scene.store.enqueue([draft(delay=timedelta(hours=1))]))
    assert before < answer.job.created_at < before + timedelta(seconds=60)
    assert answer.job.run_at == answer.job.created_at + timedelta(hours=1)
    assert scene.get(answer.job.id) == answer.job


@pytest.mark.parametrize("moment", [FAR_PAST, FAR_FUTURE, datetime(1969, 12, 31, tzinfo=UTC)])
def test_far_moments_keep_their_microseconds(scene: Scene, moment: datetime) -> None:
    job = scene.submit(run_at=moment, expires_at=moment)
    stored = scene.get(job.id)
    assert (stored.run_at, stored.expires_at) == (moment, moment)
    due = scene.next_due()
    assert due is not None
    assert due == pytest.approx((moment - scene.now).total_seconds())


def test_moments_are_answered_in_utc(scene: Scene) -> None:
    tokyo = timezone(timedelta(hours=9))
    job = scene.submit(run_at=datetime(2030, 6, 1, 12, 0, 0, 5, tzinfo=tokyo))
    stored = scene.get(job.id)
    assert stored.run_at == datetime(2030, 6, 1, 3, 0, 0, 5, tzinfo=UTC)
    assert stored.run_at.utcoffset() == timedelta(0)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_unchanged(scene: Scene, text: str) -> None:
    given = draft(
        task=text,
        queue=text,
        key=text,
        owner=text,
        tenant=text,
        arguments=text,
        metadata=text,
        tags=(text, f"{text}{text}"),
    )
    (answer,) = scene.enqueue(given)
    job = scene.get(given.id)
    assert job == answer.job
    for name in ("task", "queue", "key", "owner", "tenant", "arguments", "metadata", "tags"):
        assert getattr(job, name) == getattr(given, name), name

    criteria = JobFilter(queue=text, task=text, key=text, owner=text, tenant=text, tags=(text,))
    assert scene.store.run(scene.store.find(criteria, 10)) == [job]
    (repeat,) = scene.enqueue(draft(task=text, key=text))
    assert repeat.job.id == job.id
    assert scene.next_due([text], [text]) == 0
    scene.store.run(scene.store.pause_queue(text, text))
    assert scene.next_due([text], [text]) is None
    (queue,) = scene.store.run(scene.store.queues())
    assert (queue.name, queue.note) == (text, text)
    scene.store.run(scene.store.resume_queue(text))

    holder = scene.hire(name=text, machine=text, version=text, queues=(text,), tasks=(text,))
    (registered,) = scene.store.run(scene.store.workers())
    assert (registered.name, registered.machine, registered.version) == (text, text, text)
    assert (registered.queues, registered.tasks) == ((text,), (text,))
    (claimed,) = scene.claim(holder, 1, [text], [text])
    scene.fail(claimed, message=text)
    assert scene.attempts(job.id)[0].error == failure(text)
    (claimed,) = scene.claim(holder, 1, [text], [text])
    scene.crash(claimed)
    (claimed,) = scene.claim(scene.hire(), 1, [text], [text])
    done = scene.succeed(claimed, result=text)
    assert done.result == text
    other = scene.submit(task=text, queue=text)
    scene.cancel(other.id, reason=text)
    assert scene.get(other.id).reason == text


def test_hostile_failures_and_causes_come_back_unchanged(scene: Scene) -> None:
    for text in HOSTILE:
        job = scene.submit()
        taken = scene.take()
        scene.reap(taken.worker or new_id(), cause=text, expired_only=False)
        error = scene.get(job.id).error
        assert error is not None
        assert error.message == text
        assert [each.outcome for each in scene.attempts(job.id)] == [Outcome.CRASHED]
        scene.cancel(job.id)


def test_answers_are_in_the_order_of_the_drafts(scene: Scene) -> None:
    drafts = [draft(arguments=str(number)) for number in range(50)]
    drafts.reverse()
    answers = scene.enqueue(*drafts)
    assert [answer.job.id for answer in answers] == [each.id for each in drafts]
    assert [answer.job.arguments for answer in answers] == [each.arguments for each in drafts]


def test_an_empty_batch_is_nothing(scene: Scene) -> None:
    assert scene.enqueue() == []
    assert scene.counts() == {}


def test_five_thousand_in_one_batch(scene: Scene) -> None:
    drafts = [
        draft(id=job_id, arguments=str(number), key=f"key {number}" if number % 5 == 0 else None)
        for number, job_id in enumerate(new_id() for _ in range(5000))
    ]
    answers = scene.enqueue(*drafts)
    assert [answer.job.arguments for answer in answers] == [str(number) for number in range(5000)]
    assert all(answer.created for answer in answers)
    assert scene.counts() == {("default", State.PENDING): 5000}
    found = scene.store.run(scene.store.get([each.id for each in drafts]))
    assert found == [answer.job for answer in answers]


def test_an_id_submitted_again_changes_nothing(scene: Scene) -> None:
    first = draft(arguments='"first"')
    scene.enqueue(first)
    scene.advance(5)
    again = draft(id=first.id, arguments='"second"', queue="other", priority=100)
    fresh = draft()
    repeated, created = scene.enqueue(again, fresh)
    assert not repeated.created
    assert repeated.job.arguments == '"first"'
    assert created.created
    assert scene.get(first.id) == repeated.job
    assert scene.counts() == {("default", State.PENDING): 2}


def test_an_id_submitted_again_alone_is_not_new(scene: Scene) -> None:
    first = scene.submit(arguments='"first"')
    (repeated,) = scene.enqueue(draft(id=first.id, arguments='"second"'))
    assert not repeated.created
    assert repeated.job == scene.get(first.id) == first


def test_an_id_submitted_again_while_it_runs_changes_nothing(scene: Scene) -> None:
    job = scene.submit(key="k", key_policy=KeyPolicy.REJECT)
    running = scene.take()
    (answer,) = scene.enqueue(draft(id=job.id, key="k", key_policy=KeyPolicy.REJECT))
    assert not answer.created
    assert answer.job == running
    assert scene.settle() == []
    assert scene.succeed(running).state is State.SUCCEEDED


def test_an_id_twice_in_one_batch_is_one_job(scene: Scene) -> None:
    given = draft()
    answers = scene.enqueue(given, given)
    assert {answer.job.id for answer in answers} == {given.id}
    assert scene.counts() == {("default", State.PENDING): 1}


def alike(drafts: list[Draft]) -> Alike:
    return Alike(drafts[0], [each.id.bytes for each in drafts], [each.arguments for each in drafts])


Kind = Callable[[list[Draft]], Sequence[Draft]]


@pytest.mark.parametrize("kind", [list, alike])
def test_many_that_are_alike_keep_what_is_their_own(scene: Scene, kind: Kind) -> None:
    texts = [*HOSTILE, *(f'{{"number": {number}}}' for number in range(300))]
    drafts = kind([draft(arguments=text, tags=("a", "b"), metadata="{}") for text in texts])
    answers = scene.store.run(scene.store.enqueue(drafts, scene.now))
    assert all(answer.created for answer in answers)
    found = scene.store.run(scene.store.get([each.id for each in drafts]))
    assert found == [answer.job for answer in answers]
    assert [job and job.arguments for job in found] == texts
    assert {job and (job.tags, job.metadata) for job in found} == {(("a", "b"), "{}")}


@pytest.mark.parametrize("kind", [list, alike])
def test_known_ids_among_many_change_nothing(scene: Scene, kind: Kind) -> None:
    known = scene.submit_many(3, arguments='"first"')
    given = [draft(arguments='"second"') for _ in range(300)]
    for place, job in zip((0, 150, 299), known, strict=True):
        given[place] = draft(id=job.id, arguments='"second"')
    drafts = kind(given)
    answers = scene.store.run(scene.store.enqueue(drafts, scene.now))
    assert [answer.job.id for answer in answers] == [each.id for each in drafts]
    assert [answers[place].job for place in (0, 150, 299)] == known
    assert [answers[place].created for place in (0, 150, 299)] == [False] * 3
    assert sum(answer.created for answer in answers) == 297
    assert scene.counts() == {("default", State.PENDING): 300}


@pytest.mark.parametrize("kind", [list, alike])
def test_an_id_twice_among_many_is_one_job(scene: Scene, kind: Kind) -> None:
    given = [draft(arguments=str(number)) for number in range(300)]
    drafts = kind([*given, given[7]])
    answers = scene.store.run(scene.store.enqueue(drafts, scene.now))
    assert [answer.job.id for answer in answers] == [each.id for each in drafts]
    assert scene.counts() == {("default", State.PENDING): 300}


@pytest.mark.parametrize("number", [1, 5])
def test_few_that_are_alike_go_by_the_store_s_own_clock(scene: Scene, number: int) -> None:
    """The first of their lane, and then more."""
    stored = []
    for text in ("first", "second"):
        drafts = alike([draft(arguments=f'"{text} {each}"', tags=("a",)) for each in range(number)])
        answers = scene.store.run(scene.store.enqueue(drafts))
        assert [answer.created for answer in answers] == [True] * number
        assert [answer.job.id for answer in answers] == [each.id for each in drafts]
        stored += [answer.job for answer in answers]
    assert scene.store.run(scene.store.get([job.id for job in stored])) == stored
    assert {job.run_at - job.created_at for job in stored} == {timedelta(0)}
    claimed = scene.claim(scene.hire(), 100)
    assert [job.arguments for job in claimed] == [job.arguments for job in stored]


@pytest.mark.parametrize("number", [1, 3])
def test_the_first_of_a_lane_beside_one_that_is_much_the_same_can_be_claimed(
    scene: Scene, number: int
) -> None:
    lanes = [("a", "work", 5), ("b", "work", 5), ("b", "other", 5), ("b", "other", 6)]
    for queue, task, priority in lanes:
        first = draft(queue=queue, task=task, priority=priority)
        likes = [draft(queue=queue, task=task, priority=priority) for _ in range(number - 1)]
        scene.store.run(scene.store.enqueue(alike([first, *likes])))
        holder = scene.hire(queues=(queue,), tasks=(task,))
        claimed = scene.claim(holder, 10, (queue,), (task,))
        assert [job.priority for job in claimed] == [priority] * number


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"delay": timedelta(hours=1), "expires_after": timedelta(days=2)},
        {"run_at": FAR_PAST, "expires_at": FAR_FUTURE},
        {"run_at": FAR_FUTURE, "delay": timedelta(hours=1)},
        {"tags": ("eu", "a,b", "{}"), "metadata": '{"trace":"00-1"}'},
        {"owner": HOSTILE[0], "tenant": HOSTILE[1], "queue": HOSTILE[2], "priority": 100},
        {"max_attempts": 7, "max_crashes": 2, "timeout": 12.125, "key_window": 1.5},
        {"delivery": Delivery.AT_MOST_ONCE, "parent_id": new_id(), "flow_id": new_id()},
    ],
    ids=" and ".join,
)
def test_every_option_of_few_that_go_by_the_store_s_own_clock(
    scene: Scene, options: dict[str, Any], number: int
) -> None:
    """The first of their lane, and then more."""
    for _ in range(2):
        drafts = alike([draft(**options) for _ in range(number)])
        answers = scene.store.run(scene.store.enqueue(drafts))
        expected = [
            each.stored(answer.job.created_at) for each, answer in zip(drafts, answers, strict=True)
        ]
        assert [answer.job for answer in answers] == expected
        assert scene.store.run(scene.store.get([each.id for each in drafts])) == expected


@pytest.mark.parametrize("others", [0, 4])
def test_a_known_id_among_few_changes_nothing(scene: Scene, others: int) -> None:
    known = scene.submit(arguments='"first"')
    drafts = alike([draft(id=known.id, arguments="2"), *(draft() for _ in range(others))])
    answers = scene.store.run(scene.store.enqueue(drafts))
    assert [answer.created for answer in answers] == [False] + [True] * others
    assert answers[0].job == known == scene.get(known.id)
    assert scene.counts() == {("default", State.PENDING): 1 + others}


def test_an_id_twice_among_few_is_one_job(scene: Scene) -> None:
    scene.submit()
    given = draft()
    answers = scene.store.run(scene.store.enqueue(alike([given, given])))
    assert [answer.job.id for answer in answers] == [given.id] * 2
    assert scene.counts() == {("default", State.PENDING): 2}


def test_a_batch_is_stored_whole_or_not_at_all(scene: Scene) -> None:
    holder = scene.submit(key="taken")
    batch = [draft(), draft(key="free"), draft(key="taken", key_policy=KeyPolicy.REJECT), draft()]
    with pytest.raises(KeyConflict) as conflict:
        scene.enqueue(*batch)
    assert (conflict.value.task, conflict.value.key) == ("work", "taken")
    assert conflict.value.holder == holder.id
    found = scene.store.run(scene.store.get([each.id for each in batch]))
    assert found == [None] * 4
    assert scene.submit(key="free").id not in {each.id for each in batch}


def test_a_batch_with_a_draft_that_cannot_be_stored_stores_nothing(scene: Scene) -> None:
    good = draft(key="k")
    with pytest.raises(StoreError):
        scene.enqueue(good, draft(arguments=None))
    assert scene.store.run(scene.store.get([good.id])) == [None]
    assert scene.counts() == {}
    assert scene.enqueue(draft(key="k", key_policy=KeyPolicy.REJECT))[0].created


def test_what_is_not_there_is_none(scene: Scene) -> None:
    job = scene.submit()
    unknown = UUID(int=7)
    assert scene.store.run(scene.store.get([unknown, job.id, unknown])) == [None, job, None]
    assert scene.store.run(scene.store.get([])) == []
    assert scene.attempts(unknown) == []

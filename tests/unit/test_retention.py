"""What is forgotten, and when."""

from datetime import UTC, datetime, timedelta

from duly.model.job import State
from duly.policy.retention import Keep, RetentionPolicy, purges

NOW = datetime(2030, 6, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
DEFAULT = {state: Keep(WEEK) for state in (State.SUCCEEDED, State.CANCELLED, State.DEAD)}


def test_without_special_queues_one_purge_a_state_covers_every_queue() -> None:
    found = purges(RetentionPolicy(DEFAULT), ["mail", "web"], NOW, whole_days=False)
    assert [(each.state, each.queue, each.before) for each in found] == [
        (State.SUCCEEDED, None, NOW - WEEK),
        (State.CANCELLED, None, NOW - WEEK),
        (State.DEAD, None, NOW - WEEK),
    ]


def test_an_archive_that_drops_whole_days_has_only_its_exceptions_purged() -> None:
    policy = RetentionPolicy(DEFAULT, {"noisy": {State.SUCCEEDED: Keep(timedelta(hours=1))}})
    found = purges(policy, ["mail", "noisy"], NOW, whole_days=True)
    assert {(each.state, each.queue, each.before) for each in found} == {
        (State.SUCCEEDED, "noisy", NOW - timedelta(hours=1)),
        (State.DEAD, "mail", NOW - WEEK),
        (State.DEAD, "noisy", NOW - WEEK),
    }


def test_the_archive_reaches_back_as_far_as_the_longest_wish() -> None:
    policy = RetentionPolicy(DEFAULT, {"audit": {State.SUCCEEDED: Keep(timedelta(days=400))}})
    assert policy.longest_archived() == timedelta(days=400)
    found = purges(policy, ["audit", "mail"], NOW, whole_days=True)
    assert (State.SUCCEEDED, "mail") in {(each.state, each.queue) for each in found}
    assert (State.SUCCEEDED, "audit") not in {(each.state, each.queue) for each in found}


def test_a_limit_on_the_number_is_applied_also_where_days_are_dropped_whole() -> None:
    policy = RetentionPolicy({**DEFAULT, State.SUCCEEDED: Keep(WEEK, most=100)})
    found = purges(policy, [], NOW, whole_days=True)
    assert [(each.state, each.most) for each in found] == [
        (State.SUCCEEDED, 100),
        (State.DEAD, None),
    ]

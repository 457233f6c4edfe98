"""The options of a schedule, checked, and the definition they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, TypedDict, TypeVar

import msgspec

from duly.errors import InvalidOption, InvalidSchedule
from duly.model.catalogue import CatalogueEntry
from duly.model.schedule import CatchUp, Definition, JobTemplate, Overlap
from duly.policy import options
from duly.policy.duration import Duration
from duly.policy.duration import parse as parse_duration
from duly.policy.recurrence import Cron, Every, Recurrence, Rule
from duly.policy.ticking import recurrence_of
from duly.registry import strict_json

RuleLike = str | timedelta | Rule
Rules = RuleLike | Sequence[RuleLike] | Recurrence
Choice = TypeVar("Choice", Overlap, CatchUp)


class ScheduleOptions(TypedDict, total=False):
    """What a schedule takes beside its name, its task and its rule.

    arguments: the task's, by name.
    tz: the zone of cron expressions given as text, of excluded dates, and to show times in.
    start, end: no tick before the one or after the other.
    jitter: each tick is due up to that much after its nominal time.
    maximum_fires: the number of ticks, counted from `start`.
    excluded_dates, excluded_rules: when not to fire.
    after_finish: the interval counts from the previous job's end (fixed delay).
    overlap: what happens to a tick while a job of the schedule is live: "skip" (default),
        "buffer_one", "buffer_all", "cancel_other" or "allow".
    catch_up: which ticks are owed after downtime: "none", "latest" (default) or "all".
    catch_up_window: how far back "all" goes (default 7 days).
    pause_after_failures: pause after that many dead jobs in a row.
    queue, priority, retries, timeout, expires, tags, tenant, owner, metadata: as for a submission.
    """

    arguments: Mapping[str, Any]
    tz: str
    start: datetime | None
    end: datetime | None
    jitter: Duration
    maximum_fires: int | None
    excluded_dates: Iterable[date]
    excluded_rules: Iterable[RuleLike]
    after_finish: bool
    overlap: Overlap | str
    catch_up: CatchUp | str
    catch_up_window: Duration
    pause_after_failures: int | None
    queue: str
    priority: int
    retries: int
    timeout: Duration
    expires: Duration
    tags: Iterable[str]
    tenant: str
    owner: str
    metadata: Mapping[str, Any]


def define_schedule(
    entry: CatalogueEntry, arguments: str, rule: Rules, given: ScheduleOptions
) -> Definition:
    """The definition of a new schedule for the catalogued task; `arguments` are checked already.

    A rule that never fires is refused.
    """
    template = JobTemplate(
        queue=entry.queue,
        priority=entry.priority,
        max_attempts=entry.max_attempts,
        max_crashes=entry.max_crashes,
        timeout=entry.timeout,
        expires_after=entry.expires_after,
        delivery=entry.delivery,
        tags=entry.tags,
    )
    base = Definition(task=entry.name, arguments=arguments, recurrence="", template=template)
    return redefine_schedule(base, rule, given)


def redefine_schedule(
    definition: Definition,
    rule: Rules | None,
    given: ScheduleOptions,
    arguments: str | None = None,
) -> Definition:
    """The definition with another rule, other arguments or other options where they are given."""
    _refuse_unknown(given)
    changes: dict[str, Any] = {"template": _template(definition.template, given)}
    if arguments is not None:
        changes["arguments"] = arguments
    if rule is not None or any(name in given for name in _TIMING):
        recurrence = _recurrence(definition.recurrence, rule, given)
        recurrence.check_fires()
        changes["recurrence"] = msgspec.json.encode(recurrence).decode()
        after_finish = given.get("after_finish", definition.after_finish is not None)
        changes["after_finish"] = _delay(recurrence) if after_finish else None
    if "overlap" in given:
        changes["overlap"] = _choice("overlap", given["overlap"], Overlap)
    if "catch_up" in given:
        changes["catch_up"] = _choice("catch_up", given["catch_up"], CatchUp)
    if "catch_up_window" in given:
        window = parse_duration(given["catch_up_window"], "catch_up_window")
        changes["catch_up_window"] = window.total_seconds()
    if "pause_after_failures" in given:
        changes["pause_after_failures"] = _failures(given["pause_after_failures"])
    made = msgspec.structs.replace(definition, **changes)
    if made.after_finish is not None:
        _refuse_policies(made)
    return made


def recurrence_from(rule: Rules, given: ScheduleOptions) -> Recurrence:
    """The recurrence that a rule and the options about time make."""
    return _recurrence("", rule, given)


def _refuse_unknown(given: ScheduleOptions) -> None:
    unknown = set(given) - set(ScheduleOptions.__annotations__)
    if unknown:
        known = ", ".join(sorted(ScheduleOptions.__annotations__))
        raise InvalidOption(sorted(unknown)[0], f"no such option of a schedule; known are {known}")


def _refuse_policies(definition: Definition) -> None:
    """With a fixed delay there is never more than one tick to decide about."""
    for name, default in (("overlap", Overlap.SKIP), ("catch_up", CatchUp.LATEST)):
        if getattr(definition, name) is not default:
            raise InvalidOption(
                name,
                "after_finish=True leaves nothing to choose: the next tick follows the end "
                "of the job before",
            )


_TIMING = (
    "tz",
    "start",
    "end",
    "jitter",
    "maximum_fires",
    "excluded_dates",
    "excluded_rules",
    "after_finish",
)


def _recurrence(base: str, rule: Rules | None, given: ScheduleOptions) -> Recurrence:
    changes: dict[str, Any] = {
        name: given[name] for name in ("start", "end", "maximum_fires") if name in given
    }
    zone = given.get("tz", "UTC")
    if "tz" in given:
        changes["zone"] = zone
    if "jitter" in given:
        changes["jitter_seconds"] = round(parse_duration(given["jitter"], "jitter").total_seconds())
    if "excluded_dates" in given:
        changes["excluded_dates"] = tuple(given["excluded_dates"])
    if "excluded_rules" in given:
        changes["excluded_rules"] = tuple(_rule(each, zone) for each in given["excluded_rules"])
    if isinstance(rule, Recurrence):
        return msgspec.structs.replace(rule, **changes)
    if rule is not None:
        several = isinstance(rule, Sequence) and not isinstance(rule, str)
        rules: Sequence[Any] = rule if several else (rule,)  # type: ignore[assignment]
        changes["rules"] = tuple(_rule(each, zone) for each in rules)
    if base:
        return msgspec.structs.replace(recurrence_of(base), **changes)
    return Recurrence(**changes)


def _rule(value: Any, zone: str) -> Rule:
    if isinstance(value, Rule):
        return value
    if isinstance(value, str):
        return Cron(value, zone)
    if isinstance(value, timedelta):
        if value.microseconds or value < timedelta(seconds=1):
            raise InvalidSchedule(
                f"an interval of {value}: it must be whole seconds, such as timedelta(minutes=5)"
            )
        return Every(round(value.total_seconds()))
    raise InvalidSchedule(
        f"{value!r} is not a rule: expected cron text such as '0 9 * * mon-fri', a timedelta, or "
        "one of Cron, Every, CalendarInterval and Moments"
    )


def _delay(recurrence: Recurrence) -> float:
    """The fixed delay: the length of the one interval."""
    match recurrence.rules:
        case (Every(seconds=seconds),):
            pass
        case _:
            raise InvalidSchedule(
                "after_finish=True needs one interval, for example every(minutes=5): the "
                f"rule is {recurrence.describe()}"
            )
    if recurrence.maximum_fires or recurrence.excluded_dates or recurrence.excluded_rules:
        raise InvalidSchedule(
            "after_finish=True has no nominal times to count or to exclude: leave out "
            "maximum_fires, excluded_dates and excluded_rules"
        )
    return float(seconds)


def _choice(option: str, value: str, kind: type[Choice]) -> Choice:
    try:
        return kind(value)
    except ValueError:
        known = "', '".join(each.value for each in kind)
        raise InvalidOption(option, f"must be one of '{known}'; got {value!r}") from None


def _failures(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(
            "pause_after_failures", f"must be a whole number from 1, such as 3; got {value!r}"
        )
    return value


def _template(base: JobTemplate, given: ScheduleOptions) -> JobTemplate:
    changes: dict[str, Any] = {}
    if "queue" in given:
        changes["queue"] = options.queue(given["queue"])
    if "priority" in given:
        changes["priority"] = options.priority(given["priority"])
    if "retries" in given:
        changes["max_attempts"] = options.retries(given["retries"]) + 1
    if "timeout" in given:
        changes["timeout"] = options.timeout(given["timeout"]).total_seconds()
    if "expires" in given:
        changes["expires_after"] = parse_duration(given["expires"], "expires").total_seconds()
    if "tags" in given:
        changes["tags"] = options.tags(given["tags"])
    if "tenant" in given:
        changes["tenant"] = options.tenant(given["tenant"])
    if "owner" in given:
        changes["owner"] = options.owner(given["owner"])
    if "metadata" in given:
        changes["metadata"] = strict_json.encode(dict(given["metadata"])).decode()
    return msgspec.structs.replace(base, **changes)

"""Subscriptions that an app's code declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from duly.errors import ConfigurationError
from duly.model.event import Event, Subscription
from duly.policy import options
from duly.policy.subscribing import conditions, event_pattern
from duly.registry import strict_json

if TYPE_CHECKING:
    from duly.registry.task import TaskDefinition


def define_subscription(
    definition: TaskDefinition, pattern: str, where: Mapping[str, Any] | None, name: str | None
) -> Subscription:
    """The subscription of a task to events; the task must take one event."""
    required = definition.arguments.schema().get("required", [])
    argument = definition.arguments.first_parameter()
    wanted = f"def {definition.name}(event: duly.Event)"
    if argument is None or set(required) - {argument}:
        raise ConfigurationError(
            f"task {definition.name!r} cannot be started by an event: it must take one argument, "
            f"the event, as in `{wanted}`"
        )
    checked = conditions({} if where is None else where)
    strict_json.check(checked, "where")
    made = Subscription(
        name=options.schedule(name or f"{definition.name}:{pattern.replace('*', 'any')}"),
        pattern=event_pattern(pattern),
        where=checked,
        entry=definition.catalogued(),
        argument=argument,
    )
    _check(definition, argument)
    return made


def _check(definition: TaskDefinition, argument: str) -> None:
    """Refuse a task whose argument cannot hold an event."""
    sample = Event(id="0", name="order.paid", payload={})
    try:
        definition.arguments.encode((), {argument: sample})
    except Exception as error:
        raise ConfigurationError(
            f"task {definition.name!r} cannot be started by an event: declare its argument "
            f"{argument!r} as duly.Event ({error})"
        ) from error


class DeclaredSubscriptions:
    """The subscriptions of one app, by name."""

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}

    def add(self, subscription: Subscription) -> None:
        """Declare one; a name stands for one subscription only."""
        earlier = self._subscriptions.get(subscription.name)
        if earlier is not None and earlier != subscription:
            raise ConfigurationError(
                f"two subscriptions are declared as {subscription.name!r}: give one of them "
                "another name with @app.on(..., name=...)"
            )
        self._subscriptions[subscription.name] = subscription

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._subscriptions.values())

    def __len__(self) -> int:
        return len(self._subscriptions)

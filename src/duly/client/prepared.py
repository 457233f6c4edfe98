"""A job that is ready to be submitted, alone or as a node of a flow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from duly.errors import InvalidFlow
from duly.model.identifiers import id_of, new_binary_id, new_binary_ids
from duly.model.job import Alike, Draft
from duly.registry.task import TaskDefinition

if TYPE_CHECKING:
    from duly.model.flow import Condition, Rule

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

Decode = Callable[[str], Any]


class Prepared(msgspec.Struct, Generic[R_co], gc=False):
    """A job that is ready to be submitted: checked, encoded, not stored.

    It is one job however often it is submitted: one that has its id may have been. Made inside a
    `with app.flow(...)` block it is a node of that flow: `a >> b` lets b wait for a, and
    `a.output` stands for its result as an argument of other nodes.

    `template` is what it has in common with others; it gets its id when it is first asked for its
    draft, or many of them together, see `drafts_of`.
    """

    template: Draft
    arguments: str
    decode: Decode
    binary_id: bytes | None = None
    own: Draft | None = None

    @property
    def draft(self) -> Draft:
        """The job as it is submitted."""
        if self.own is None:
            self.own = drafts_of([self])[0][0]
        return self.own

    @property
    def output(self) -> R_co:
        """Its result, as an argument of another node of its flow; of its result's type to a type
        checker, and only a reference until then."""
        return cast(R_co, self)

    @property
    def outputs(self) -> list[R_co]:
        """The list of its results, of a node that runs once for each item."""
        return cast(list[R_co], self)

    def named(self, name: str) -> Prepared[R_co]:
        """Give the node a name other than its task's."""
        _flow_of(self).name_node(self, name)
        return self

    def when(self, rule: Rule | str) -> Prepared[R_co]:
        """Run the node when its parents came to this: "all_succeeded" (the default),
        "all_finished", "any_failed" or "any_succeeded"."""
        _flow_of(self).set_rule(self, rule)
        return self

    def after(self, *parents: Nodes, on: Condition | str = "succeeded") -> Prepared[R_co]:
        """Let the node wait for others, each of which has to have "succeeded", "failed" or just
        "finished"."""
        _flow_of(self).link(nodes_in(parents), [self], on)
        return self

    def __rshift__(self, children: Linked) -> Linked:
        _flow_of(self).link([self], nodes_in(children))
        return children

    def __rrshift__(self, parents: Nodes) -> Prepared[R_co]:
        _flow_of(self).link(nodes_in(parents), [self])
        return self

    def __lshift__(self, parents: Linked) -> Linked:
        _flow_of(self).link(nodes_in(parents), [self])
        return parents


_drafting = threading.Lock()


def _start_anew() -> None:
    # A forked child must not inherit a lock held by another thread.
    global _drafting
    _drafting = threading.Lock()


os.register_at_fork(after_in_child=_start_anew)


def drafts_of(prepared: Sequence[Prepared[Any]]) -> tuple[Sequence[Draft], bool]:
    """The jobs as they are submitted, the same each time, from whatever thread; and whether any of
    them had its id before, and so may have been submitted, here or in a process that was forked."""
    with _drafting:
        new = [each for each in prepared if each.binary_id is None]
        for each, job_id in zip(new, new_binary_ids(len(new)), strict=True):
            each.binary_id = job_id
    known = len(new) < len(prepared)
    if len({id(each.template) for each in prepared}) == 1:
        template = prepared[0].template
        if template.key is None:
            ids = cast(list[bytes], [each.binary_id for each in prepared])
            return Alike(template, ids, [each.arguments for each in prepared]), known
    drafts = [
        replace(each.template, id=id_of(cast(bytes, each.binary_id)), arguments=each.arguments)
        for each in prepared
    ]
    return drafts, known


def drafts_of_one(prepared: Prepared[Any]) -> Sequence[Draft]:
    """The same of a job that is in nobody else's hands."""
    template, job_id = prepared.template, new_binary_id()
    if template.key is None:
        return Alike(template, (job_id,), (prepared.arguments,))
    return [replace(template, id=id_of(job_id), arguments=prepared.arguments)]


class Group(Sequence[Prepared[Any]]):
    """Nodes that are linked together, `group(a, b) >> [c, d]`; as an argument, the list of their
    results."""

    def __init__(self, nodes: Iterable[Prepared[Any]]) -> None:
        self._nodes = tuple(nodes)

    def __getitem__(self, place: Any) -> Any:
        return self._nodes[place]

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def output(self) -> list[Any]:
        """The list of their results, as an argument of another node."""
        return cast(list[Any], self)

    def __rshift__(self, children: Linked) -> Linked:
        for flow in _flows_of(self):
            flow.link(list(self), nodes_in(children))
        return children

    def __rrshift__(self, parents: Nodes) -> Group:
        for flow in _flows_of(self):
            flow.link(nodes_in(parents), list(self))
        return self


class Each(msgspec.Struct):
    """Stands for one item of a list, in an argument of a node that runs once for each."""

    source: Any


def each(source: Prepared[list[T]] | Sequence[T]) -> T:
    """One item of a list that another node returns, or of a list given here: the node that has it
    as an argument runs once for each item. Its result is the list of all results, in order."""
    return cast(T, Each(source))


def group(*nodes: Nodes) -> Group:
    """Nodes to be linked together."""
    return Group(nodes_in(nodes))


def chain(*steps: Nodes) -> None:
    """Let each step wait for the one before: `chain(a, [b, c], d)`."""
    for before, after in pairwise(steps):
        children = nodes_in(after)
        for flow in _flows_of(children):
            flow.link(nodes_in(before), children)


Nodes = Prepared[Any] | Group | list[Any] | tuple[Any, ...]
Linked = TypeVar("Linked", bound=Nodes)


class Builder(Protocol):
    """What a node needs of the flow that is being built."""

    def add(
        self,
        definition: TaskDefinition,
        fill: Callable[[bytes], Prepared[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Prepared[Any]:
        """A node that runs a task; among its arguments may be other nodes."""
        ...

    def add_encoded(self, prepared: Prepared[Any]) -> Prepared[Any]:
        """A node whose arguments are all known."""
        ...

    def name_node(self, node: Prepared[Any], name: str) -> None: ...
    def set_rule(self, node: Prepared[Any], rule: Rule | str) -> None: ...
    def link(
        self,
        parents: Sequence[Prepared[Any]],
        children: Sequence[Prepared[Any]],
        on: Condition | str = "succeeded",
    ) -> None: ...


building: ContextVar[Builder | None] = ContextVar("duly_building_flow", default=None)
"""The flow whose block this code is in."""


def nodes_in(given: Nodes) -> list[Prepared[Any]]:
    """The nodes in a node, a group, or a list of these."""
    if isinstance(given, Prepared):
        return [given]
    if isinstance(given, list | tuple | Group):
        return [node for each in given for node in nodes_in(each)]
    raise InvalidFlow(
        f"{given!r} is not a node: expected what task.job(...) returns, or a list of these"
    )


def _flow_of(node: Prepared[Any]) -> Builder:
    flow = building.get()
    if flow is None:
        raise InvalidFlow(
            f"the job of task {node.draft.task!r} is not in a flow: nodes are made and linked "
            "inside `with app.flow(...):`"
        )
    return flow


def _flows_of(nodes: Sequence[Prepared[Any]]) -> list[Builder]:
    return [_flow_of(nodes[0])] if nodes else []

"""Results that do not fit the parameters they are passed to are refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.client.prepared import Group, Prepared
from duly.errors import InvalidFlow
from duly.model.flow import Condition, Rule
from duly.registry.compatibility import accepts_null, fits, items_of
from duly.registry.structure import type_name

if TYPE_CHECKING:
    from duly.client.flow import NodeSpec


def check_results(
    specs: Mapping[UUID, NodeSpec], edges: Mapping[tuple[UUID, UUID], Condition]
) -> None:
    """Raise InvalidFlow for the first result that cannot be the argument it is passed as."""
    known: dict[tuple[int, int], tuple[Any, Any]] = {}
    for spec in specs.values():
        if spec.definition is None:
            continue
        declared = spec.definition.arguments.declared
        for name, given in spec.gets.items():
            wanted = declared(name)
            if isinstance(given, Group):
                wanted = items_of(wanted)
                if wanted is None:
                    raise _misfit(specs, given[0], spec, name, "a list of results", declared(name))
            for parent in given if isinstance(given, Group) else [given]:
                result = result_type(specs, parent)
                pair = (id(result), id(wanted))
                if pair not in known and not fits(result, wanted):
                    raise _misfit(specs, parent, spec, name, _shown(result), wanted)
                known[pair] = (result, wanted)
                _refuse_missing(specs, edges, parent, spec, name, wanted)
        if spec.each is not None and isinstance(spec.source, Prepared):
            result = result_type(specs, spec.source)
            item = items_of(result)
            if item is None:
                raise _misfit(
                    specs, spec.source, spec, spec.each, _shown(result), "a list to map over"
                )
            if not fits(item, declared(spec.each)):
                raise _misfit(
                    specs,
                    spec.source,
                    spec,
                    spec.each,
                    f"items of {_shown(item)}",
                    declared(spec.each),
                )


def result_type(specs: Mapping[UUID, NodeSpec], node: Prepared[Any]) -> Any:
    """The declared type of a node's result; of a node that runs once for each item, a list."""
    spec = specs[node.draft.id]
    if spec.definition is None:
        return Any
    declared = spec.definition.result.declared
    return GenericAlias(list, (declared,)) if spec.each is not None else declared


def _refuse_missing(
    specs: Mapping[UUID, NodeSpec],
    edges: Mapping[tuple[UUID, UUID], Condition],
    parent: Prepared[Any],
    spec: NodeSpec,
    name: str,
    wanted: Any,
) -> None:
    """Where the parent may have failed, there may be no result: None stands for it."""
    surely = (
        spec.rule is Rule.ALL_SUCCEEDED and edges[parent.draft.id, spec.id] is Condition.SUCCEEDED
    )
    if not surely and not accepts_null(wanted):
        raise InvalidFlow(
            f"{specs[parent.draft.id].name} >> {spec.name}: {spec.name} runs also when "
            f"{specs[parent.draft.id].name} has failed, and gets None for its result then; "
            f"declare argument {name!r} as {_shown(wanted)} | None"
        )


def _misfit(
    specs: Mapping[UUID, NodeSpec],
    parent: Prepared[Any],
    spec: NodeSpec,
    name: str,
    given: str,
    wanted: Any,
) -> InvalidFlow:
    above = specs[parent.draft.id].name
    expected = wanted if isinstance(wanted, str) else _shown(wanted)
    return InvalidFlow(
        f"{above} >> {spec.name}: {above} returns {given}, argument {name!r} of task "
        f"{spec.node.draft.task!r} is {expected}"
    )


def _shown(kind: Any) -> str:
    return type_name(kind) if isinstance(kind, type) else str(kind)

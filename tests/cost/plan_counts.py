"""What PostgreSQL's plans handle: the rows that pass through every node of a statement's plan.

Rows of tables are not all: a join inside a statement can compare every row with every other and
look at no page for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg

from duly.store.operation import Operation, Row, Statement, drive
from duly.store.postgres.connection import configure
from duly.store.postgres.exchange import numbered


def rows_handled(url: str, operation: Operation[Any], settings: Sequence[str] = ()) -> float:
    """Run the operation with plans as the server keeps them, made without a look at the values,
    under these settings; answers how many rows their nodes gave on or threw away.

    Nothing of it is kept.
    """
    handled = 0.0
    with psycopg.connect(url) as connection:
        configure(connection)
        for setting in ("plan_cache_mode = force_generic_plan", *settings):
            connection.execute(f"SET LOCAL {setting}".encode())

        def explain(statement: Statement) -> list[Row]:
            nonlocal handled
            connection.execute("SAVEPOINT explained")
            handled += _rows(_plan(connection, statement))
            connection.execute("ROLLBACK TO explained")
            with connection.cursor(binary=True) as cursor:
                cursor.execute(statement.text.encode(), statement.parameters)
                return cursor.fetchall() if cursor.description is not None else []

        drive(operation.start(), explain)
        connection.rollback()
    return handled


def _plan(connection: psycopg.Connection[Any], statement: Statement) -> dict[str, Any]:
    text, names = numbered(statement.text)
    parameters = statement.parameters or {}
    values = [parameters[name] for name in names]
    connection.execute(f"PREPARE duly_cost AS {text}".encode())
    call = f"duly_cost({', '.join(['%s'] * len(values))})" if values else "duly_cost"
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {call}".encode(), values)
        row = cursor.fetchone()
    connection.execute("DEALLOCATE duly_cost")
    assert row is not None
    plan: dict[str, Any] = row[0][0]["Plan"]
    return plan


def _rows(plan: dict[str, Any]) -> float:
    given = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
    total = 0.0
    for node in _nodes(plan):
        total += node["Actual Loops"] * sum(node.get(name, 0) for name in given)
    return total


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)

"""docs/states.md says what duly.policy.states does."""

import re
from pathlib import Path

from duly import State, Status
from duly.policy.states import CHARGED, FINAL, LIVE, TRANSITIONS

PAGE = Path(__file__).parent.parent.parent / "docs" / "states.md"


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def words(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_the_table_of_transitions_is_the_codes() -> None:
    documented = {
        change.strip("`"): (words(before), after.strip("`"))
        for change, before, after, _ in rows("Transitions")
    }
    assert documented == {
        change.value: ({state.value for state in before}, after.value)
        for change, (before, after) in TRANSITIONS.items()
    }


def test_every_state_is_described() -> None:
    table = rows("States")
    assert [state.strip("`") for state, *_ in table] == [state.value for state in State]
    assert {state.strip("`") for state, kind, _ in table if kind == "live"} == set(LIVE)
    assert {state.strip("`") for state, kind, _ in table if kind == "final"} == set(FINAL)


def test_every_status_is_described() -> None:
    shown = {state.strip("`") for state, *_ in rows("What is shown")}
    assert shown == {status.value for status in Status} - {state.value for state in State}


def test_the_outcomes_that_are_charged_are_named() -> None:
    table = rows("Outcomes of an attempt")
    charged = {outcome.strip("`") for outcome, charge, _ in table if charge == "yes"}
    assert charged == {outcome.value for outcome in CHARGED}

"""An ETL flow: extract, convert each row by a job of its own, load, and report however it ended.

Run it with Python in an environment that has Duly; it uses an SQLite file in a folder of its own.
One row is broken: the flow fails, is mended, and its failed part alone runs again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duly

FOLDER = tempfile.TemporaryDirectory(prefix="duly-etl-")
app = duly.App(f"sqlite:///{Path(FOLDER.name) / 'etl.db'}")
rates = {"EUR": 1.0, "USD": 0.9}
ran: list[str] = []


@app.task(retries=0)
def extract(day: str) -> list[dict[str, str]]:
    """The rows of a day; nobody knows beforehand how many."""
    ran.append("extract")
    return [
        {"order": "1", "amount": "10.00", "currency": "EUR"},
        {"order": "2", "amount": "20.00", "currency": "USD"},
        {"order": "3", "amount": "30.00", "currency": "GBP"},
    ]


@app.task(retries=0)
def convert(row: dict[str, str]) -> float:
    """One row, in euros."""
    ran.append(f"convert {row['order']}")
    return float(row["amount"]) * rates[row["currency"]]


@app.task
def load(amounts: list[float]) -> float:
    """Everything that was converted, added up."""
    ran.append("load")
    return sum(amounts)


@app.task
def report(day: str, turnover: float | None) -> str:
    """What came of it, also when there is nothing."""
    return f"{day}: no turnover" if turnover is None else f"{day}: {turnover:.2f} EUR"


def etl(day: str) -> duly.FlowRun:
    """Submit the flow of one day."""
    with app.flow("etl", on_failure="continue", max_active=1) as flow:
        rows = extract.job(day)
        amounts = convert.job(duly.each(rows))
        turnover = load.job(amounts=amounts.outputs)
        flow.at_end(report.job(day, turnover.output))
    return flow.submit()


def main() -> int:
    """Fail, mend, retry."""
    run = etl("2026-11-15")
    with app.running():
        try:
            run.wait(timeout=30)
        except duly.FlowNotSucceeded as problem:
            print(problem)
        print(run.job("report").result(timeout=30))
        for node in run.nodes():
            print(f"  {node.name}: {node.state.value} {node.reason or ''}")
        rates["GBP"] = 1.2
        ran.clear()
        run.retry()
        run.wait(timeout=30)
        print(run.job("report").result(timeout=30), "after running", ", ".join(ran), "again")
    app.close()
    FOLDER.cleanup()
    return 0 if ran == ["convert 3", "load"] else 1


if __name__ == "__main__":
    sys.exit(main())

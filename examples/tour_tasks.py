"""The tasks of the tour. They are in a module of their own because isolated tasks are imported by
other processes, as they are when a worker runs them."""

from __future__ import annotations

import ctypes
import os

import duly

app = duly.App(os.environ.get("DULY_TOUR_URL", "sqlite:///tour.db"))
started: list[str] = []


@app.task
def greet(name: str) -> str:
    """The simplest of tasks."""
    return f"Hello, {name}!"


@app.task
def note(label: str) -> None:
    """Remember that this ran."""
    started.append(label)


@app.task(retries=3, backoff=[0.3, 0.6])
def fetch_report(day: str) -> str:
    """A service that is down for the first two calls."""
    attempt = duly.current().attempt
    if attempt < 3:
        raise ConnectionError(f"attempt {attempt}: the report server is down")
    return f"report of {day}, fetched at attempt {attempt}"


@app.task(retries=1, backoff=0.2)
def charge(order: int, amount: int) -> str:
    """Refuses bad amounts, as often as it is asked."""
    if amount <= 0:
        raise ValueError(f"order {order}: cannot charge {amount}")
    return f"order {order}: charged {amount}"


@app.task
def long_export() -> str:
    """Works in small pieces and looks whether it is still wanted."""
    for piece in range(1000):
        duly.current().progress(piece / 1000, f"piece {piece} of 1000")
        if duly.current().wait_cancelled(0.05):
            raise duly.Cancel("stopped between two pieces")
    return "exported"


@app.every(seconds=1)
def heartbeat() -> str:
    """Runs every second, by a schedule of the same name."""
    return f"{duly.current().scheduled_for:%H:%M:%S}"


@app.task(isolate=True, max_crashes=2)
def poison() -> None:
    """Takes its process down with it."""
    ctypes.string_at(0)


@app.task(transactional=True)
def book(order: int) -> int:
    """Writes to the database that holds the jobs: both commit together."""
    duly.current().connection.execute("INSERT INTO bookings VALUES (?)", (order,))
    return order


@app.task
def put_back(item: str) -> None:
    """Undoes a reservation."""
    started.append(f"{item} put back")


def reserve(item: str) -> str:
    """A step: it is recorded, and never run again."""
    started.append(f"{item} reserved")
    return f"reservation of {item}"


@app.task(retries=0)
async def order(item: str) -> str:
    """Reserves, waits for the payment as a row, and gives back what nobody pays for."""
    ctx = duly.current()
    await ctx.on_failure(put_back, item)
    reservation = await ctx.step("reserve", reserve, item)
    paid = await ctx.wait_for("order.paid", key=item, timeout="3s")
    return f"{reservation}, paid {paid.payload['amount']}"


@app.on("order.*")
def audit(event: duly.Event) -> None:
    """Started for each event, once."""
    started.append(f"{event.name} {event.key}")


@app.task
def orders_of(day: str) -> list[int]:
    """How many pieces each order of the day is for."""
    return [1, 2, 3]


@app.task
def price(pieces: int) -> int:
    """What an order costs."""
    return pieces * 100


@app.task
def add_up(amounts: list[int]) -> int:
    """The turnover."""
    return sum(amounts)

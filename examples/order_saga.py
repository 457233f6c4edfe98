"""An order as a saga: stock, payment, shipment, and the way back when one of them fails.

Run it: `python examples/order_saga.py`. Each possible failure is tried, and what is left in the end
is checked: a paid and shipped order, or nothing at all.
"""

from __future__ import annotations

import duly

app = duly.App("sqlite://")
stock = {"book": 3}
charged: dict[str, int] = {}
shipped: list[str] = []


class Refused(Exception):
    """A service said no."""


@app.task
def put_back(order: str, item: str) -> None:
    """Undo a reservation."""
    if order in reserved:
        reserved.remove(order)
        stock[item] += 1


@app.task
def refund(order: str) -> None:
    """Undo a payment."""
    charged.pop(order, None)


reserved: set[str] = set()


def reserve(order: str, item: str, fails: str) -> None:
    """Take one from the stock."""
    if fails == "stock":
        raise Refused(f"no {item} left")
    stock[item] -= 1
    reserved.add(order)


def charge(order: str, amount: int, fails: str) -> str:
    """Take the money."""
    if fails == "payment":
        raise Refused("card declined")
    charged[order] = amount
    return f"receipt for {amount}"


def ship(order: str, fails: str) -> str:
    """Hand over to the carrier."""
    if fails == "shipment":
        raise Refused("address unknown")
    shipped.append(order)
    return f"parcel of {order}"


@app.task(retries=0)
async def place(order: str, item: str, amount: int, fails: str = "") -> list[str]:
    """Register the way back of each step before it is taken."""
    ctx = duly.current()
    await ctx.on_failure(put_back, order, item)
    await ctx.step("reserve", reserve, order, item, fails)
    await ctx.on_failure(refund, order)
    receipt = await ctx.step("charge", charge, order, amount, fails)
    parcel = await ctx.using(retries=1, backoff=0.01).step("ship", ship, order, fails)
    return [receipt, parcel]


def main() -> None:
    """One good order, and one for each failure."""
    good = place.enqueue("order-1", "book", 20)
    app.run_until_idle()
    print("order-1:", ", ".join(good.result(timeout=10)))
    assert (stock, charged, shipped) == ({"book": 2}, {"order-1": 20}, ["order-1"])
    for number, fails in enumerate(("stock", "payment", "shipment"), 2):
        order = f"order-{number}"
        job = place.enqueue(order, "book", 20, fails)
        app.run_until_idle()
        record = job.refresh().record
        assert record.state is duly.State.DEAD
        assert (stock, charged, shipped) == ({"book": 2}, {"order-1": 20}, ["order-1"])
        undone = [step.name for step in app.steps(job.id) if step.kind is duly.StepKind.UNDO]
        print(f"{order}: {record.error and record.error.message}; undone: {undone[::-1]}")
    app.close()


if __name__ == "__main__":
    main()

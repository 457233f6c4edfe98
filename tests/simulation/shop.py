"""The app of the tests: tasks, steps, a schedule and a subscription, as a user has them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import duly


@dataclass
class Shop:
    """An app, and what its code did to the world."""

    app: duly.App
    outbox: list[str] = field(default_factory=list)


def make_shop() -> Shop:
    """A new one. Its own database is a file that must never be made."""
    app = duly.App("sqlite:///must-not-exist.db", application="shop")
    shop = Shop(app)
    outbox = shop.outbox

    @app.task(queue="mail", retries=2, backoff="1h", jitter=False)
    def send_email(to: str, subject: str = "Hello") -> str:
        if to == "nobody":
            raise ValueError("no such address")
        outbox.append(f"{subject} to {to}")
        return f"sent to {to}"

    @app.cron("0 9 * * mon-fri", tz="Europe/Berlin")
    async def digest() -> None:
        await asyncio.sleep(2)
        outbox.append("digest")

    def charge(order: int) -> str:
        outbox.append(f"charge {order}")
        return f"receipt {order}"

    def ship(order: int) -> str:
        outbox.append(f"ship {order}")
        return f"parcel {order}"

    @app.task
    async def fulfil(order: int) -> str:
        ctx = duly.current()
        receipt = await ctx.step("charge", charge, order)
        await ctx.sleep("2d")
        return f"{receipt}, {await ctx.step('ship', ship, order)}"

    @app.task
    def fulfil_in_a_thread(order: int) -> str:
        ctx = duly.current_blocking()
        receipt = ctx.step("charge", charge, order)
        ctx.sleep("2d")
        return f"{receipt}, {ctx.step('ship', ship, order)}"

    @app.on("order.paid")
    def thank(event: duly.Event) -> None:
        outbox.append(f"thanks for {event.payload['order']}")

    return shop

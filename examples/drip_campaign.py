"""A drip campaign: one job a customer, asleep for days between its letters, in virtual time.

Run it: `python examples/drip_campaign.py`. Three weeks pass in a moment, because the app has a
clock of its own. While they sleep, jobs are rows: no worker holds them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duly

clock = duly.ManualClock(datetime(2026, 5, 4, 9, tzinfo=UTC))
app = duly.App("sqlite://", clock=clock)
outbox: list[tuple[str, str, str]] = []


def send(to: str, letter: str) -> None:
    """A letter, with the day it was sent on."""
    outbox.append((f"{clock.now():%a %d %b}", to, letter))


@app.task
async def campaign(to: str) -> str:
    """Welcome, then a tip, then an offer; whoever buys gets no more letters."""
    ctx = duly.current()
    await ctx.step("welcome", send, to, "welcome")
    await ctx.sleep("3d")
    await ctx.step("tip", send, to, "a tip")
    try:
        await ctx.wait_for("customer.bought", key=to, timeout="7d")
    except duly.WaitTimeout:
        await ctx.step("offer", send, to, "an offer")
        await ctx.sleep("10d")
        await ctx.step("goodbye", send, to, "goodbye")
        return "no sale"
    await ctx.step("thanks", send, to, "thank you")
    return "sold"


def main() -> None:
    """Ada buys on the fifth day, Bob never does."""
    ada, bob = campaign.enqueue("ada"), campaign.enqueue("bob")
    for day in range(22):
        app.run_until_idle()
        if day == 5:
            app.emit("customer.bought", {"amount": 30}, key="ada")
            app.run_until_idle()
            assert ada.result(timeout=10) == "sold"
        clock.advance(timedelta(days=1))
    for day_sent, to, letter in outbox:
        print(f"{day_sent}  {to:4} {letter}")
    assert bob.result(timeout=10) == "no sale"
    assert [letter for _, to, letter in outbox if to == "ada"] == ["welcome", "a tip", "thank you"]
    assert [day_sent for day_sent, to, _ in outbox if to == "bob"] == [
        "Mon 04 May",
        "Thu 07 May",
        "Thu 14 May",
        "Sun 24 May",
    ]
    app.close()


if __name__ == "__main__":
    main()

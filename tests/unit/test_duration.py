"""Durations: every accepted form, every refused one, and that text comes back the same."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly.errors import InvalidOption
from duly.policy import duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("24h", 86_400),
        ("90s", 90),
        ("90", 90),
        ("1.5", 1.5),
        ("1h30m", 5_400),
        (" 1h 30m ", 5_400),
        ("24 h", 86_400),
        ("1.5h", 5_400),
        ("500ms", 0.5),
        ("250us", 0.00025),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1w2d3h4m5s6ms7us", 788_645.006_007),
        ("0s", 0),
        ("PT1H30M", 5_400),
        ("P1DT0.5S", 86_400.5),
        ("P2W", 1_209_600),
        (30, 30),
        (0.1, 0.1),
        (0, 0),
        (timedelta(minutes=2), 120),
    ],
)
def test_what_is_right_is_read(value: Any, seconds: float) -> None:
    assert duration.parse(value, "delay") == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        "", "-", "h", "abc", "1x", "30m1h", "1h1h", "1 0s", "1h30", "1,000s", "+5s", "--5s",
        "P", "PT", "P1", "P1Y", "P1M", "PT1D", "pt1h", "1H", "nan", "inf", "1e5", "\u0661s",
        "1s; drop table", "9" * 500, "1h" + " " * 60 + "x", -1, -0.5, "-5s", "-PT1H",
        timedelta(seconds=-1), math.nan, math.inf, -math.inf, 1e300, 101 * 31_557_600,
        pytest.param(10**5000, id="huge"),
        "5300w", timedelta.max, True, None, b"5", [5], 5j,
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_an_example(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r'(?s)^delay: .* text such as "90s", "24h"'):
        duration.parse(value, "delay")


@pytest.mark.parametrize("value", ["-1h30m", "-PT1H30M", -5400, timedelta(seconds=-5400)])
def test_negative_ones_pass_when_asked_for(value: Any) -> None:
    assert duration.parse(value, "offset", negative=True) == timedelta(seconds=-5400)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(hours=1, minutes=30), "1h30m"),
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(seconds=1.5), "1.5s"),
        (timedelta(milliseconds=500), "500ms"),
        (timedelta(microseconds=1500), "1.5ms"),
        (timedelta(microseconds=5), "5us"),
        (timedelta(days=14), "2w"),
        (timedelta(days=30), "30d"),
        (timedelta(days=1, microseconds=1), "1d0.000001s"),
        (timedelta(hours=-1), "-1h"),
    ],
)
def test_format_is_short(value: timedelta, text: str) -> None:
    assert duration.format(value) == text


@settings(deadline=None)
@given(st.timedeltas(-duration.LONGEST, duration.LONGEST))
def test_formatted_text_is_read_as_the_same(value: timedelta) -> None:
    assert duration.parse(duration.format(value), "delay", negative=True) == value


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = duration.parse(text, "delay")
    except InvalidOption:
        return
    assert timedelta(0) <= value <= duration.LONGEST

"""Text that cannot act, times that can be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.cli.inert import inert, inert_block, inert_json
from duly.service.settings import without_password
from duly.service.wording import absolute, counted, relative, span

NOW = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, größer, 日本\u3000語, ✓", "plain text, größer, 日本\u3000語, ✓"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\u2028\u2029\u200b\ufeff", "\\u2028\\u2029\\u200b\\ufeff"),
        ("\ud800\x00\x7f", "\\ud800\\x00\\x7f"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_inert(text: str, shown: str) -> None:
    assert inert(text) == shown


def test_a_block_keeps_its_lines() -> None:
    assert inert_block("a\n\tb\r\n\x1b") == "a\n    b\\r\n\\x1b"


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    encoded = json.dumps({"x": text}, indent=2, ensure_ascii=False)
    shown = inert_json(encoded)
    assert json.loads(shown) == {"x": text}
    assert inert_block(shown) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (0.0001, "0 s"),
        (0.04, "40 ms"),
        (0.0996, "0.1 s"),
        (0.42, "0.4 s"),
        (9.96, "10 s"),
        (12, "12 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (3660, "1 h 1 min"),
        (86400 * 400 + 3600, "400 d 1 h"),
        (-75, "1 min 15 s"),
    ],
)
def test_spans(seconds: float, shown: str) -> None:
    assert span(timedelta(seconds=seconds)) == shown


def test_moments() -> None:
    assert relative(NOW, NOW) == "now"
    assert relative(NOW + timedelta(hours=3, minutes=2), NOW) == "in 3 h 2 min"
    assert relative(NOW + timedelta(hours=3, minutes=2), NOW, units=1) == "in 3 h"
    assert relative(NOW - timedelta(seconds=12), NOW) == "12 s ago"
    assert absolute(NOW) == "2026-11-16 09:00 UTC"
    assert absolute(NOW + timedelta(microseconds=1)) == "2026-11-16 09:00:00 UTC"


def test_counts() -> None:
    assert counted(1, "job") == "1 job"
    assert counted(4000, "job") == "4,000 jobs"
    assert counted(2, "crash", "crashes") == "2 crashes"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:secret@host/db", "postgresql://ada:***@host/db"),
        ("at postgresql://:secret@host/db now", "at postgresql://:***@host/db now"),
        ("postgresql://ada:p@ss:w/rd@host/db", "postgresql://ada:***@host/db"),
        (
            "postgresql://host/db?user=a&password=x&b=c",
            "postgresql://host/db?user=a&password=***&b=c",
        ),
        ("postgresql://ada@host:5432/db", "postgresql://ada@host:5432/db"),
        ("sqlite:////home/ada/a:b@c.db", "sqlite:////home/ada/a:b@c.db"),
    ],
)
def test_passwords_are_hidden(text: str, shown: str) -> None:
    assert without_password(text) == shown

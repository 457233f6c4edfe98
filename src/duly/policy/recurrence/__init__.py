"""When recurring work is due: rules as frozen values, and pure functions of them and an instant.

Rules are Cron, Every (fixed rate), CalendarInterval and Moments; a Recurrence joins them with a
start, an end, a maximum, exclusions and jitter, and is what a schedule stores, as JSON. Nothing
here reads a clock or a store. Instants are aware datetimes, answers are in UTC on whole seconds,
"next" is always strictly after. How DST is treated: `wall_clock`.
"""

from duly.policy.recurrence.calendar_interval import CalendarInterval
from duly.policy.recurrence.combined import FireRange, Recurrence, Rule
from duly.policy.recurrence.cron import Cron
from duly.policy.recurrence.interval import Every, every
from duly.policy.recurrence.moments import Moments
from duly.policy.recurrence.preview import PreviewedFire, preview
from duly.policy.recurrence.zones import load_zone, refresh_zones

__all__ = [
    "CalendarInterval",
    "Cron",
    "Every",
    "FireRange",
    "Moments",
    "PreviewedFire",
    "Recurrence",
    "Rule",
    "every",
    "load_zone",
    "preview",
    "refresh_zones",
]

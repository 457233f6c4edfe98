"""The dice of this process, for jitter and pauses; a simulation seeds them."""

from __future__ import annotations

import os
import random

chance = random.Random()
os.register_at_fork(after_in_child=chance.seed)

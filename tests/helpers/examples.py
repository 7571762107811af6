"""Fewer examples of Hypothesis where each one compiles a network or searches a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import hypothesis

#: Never fewer examples than this, unless a test asks for fewer.
FEWEST = 8
#: Tests draw one example of so many.
OF = 3

#: Whether tests draw all examples.
all_of_them = False


def fewer(count: int) -> int:
    """Return how many examples are drawn of ``count``."""
    return count if all_of_them else min(count, max(FEWEST, count // OF))


def limit(tests: Iterable[Any]) -> None:
    """Have those tests that are of Hypothesis draw fewer examples than they say."""
    for test in {getattr(test, "__func__", test) for test in tests}:
        if getattr(test, "is_hypothesis_test", False):
            own = test._hypothesis_internal_use_settings
            own = hypothesis.settings(own, max_examples=fewer(own.max_examples))
            test._hypothesis_internal_use_settings = own

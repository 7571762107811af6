"""Timing a whole placement: whatever fails is a failure of that placement alone."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from convoy.errors import CompileFailed
from convoy.measure import trial


def placement(objective: str) -> Any:
    return SimpleNamespace(plan=SimpleNamespace(objective=objective))


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, AssertionError, OSError])
def test_what_does_not_compile_is_told_with_its_reason(error: type[Exception]) -> None:
    def compile_placement(*_args: object, **_options: object) -> Any:
        raise error("kernel 7 is gone")

    with pytest.raises(CompileFailed, match=f"{error.__name__}.*kernel 7 is gone"):
        trial.time_placement(placement("graph"), compile_placement)


@pytest.mark.parametrize(("objective", "graph"), [("graph", True), ("stream", False)])
def test_samples_are_of_the_mode_of_the_objective(objective: str, graph: bool) -> None:
    asked: dict[str, object] = {}

    class Session:
        input_info = ()

        def time(self, repeat: int, number: int) -> list[float]:
            return [0.25] * repeat

    def compile_placement(_placed: object, **options: object) -> Any:
        asked.update(options)
        return SimpleNamespace(session=Session)

    samples = trial.time_placement(placement(objective), compile_placement, nullcontext)
    assert list(samples) == [250.0] * trial.SAMPLES
    assert asked["cuda_graph"] is graph and asked["streams"] == ("auto" if graph else 1)

"""Timing a whole placement: whatever fails is a failure of that placement alone."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from convoy.errors import CompileFailed
from convoy.measure import trial

BUILD = importlib.import_module("convoy.pipeline")


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, AssertionError, OSError])
def test_what_does_not_compile_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def compile_placement(*_args: object, **_options: object) -> object:
        raise error("kernel 7 is gone")

    monkeypatch.setattr(BUILD, "compile_placement", compile_placement)
    placed = SimpleNamespace(plan=SimpleNamespace(objective="graph"))
    with pytest.raises(CompileFailed, match=f"{error.__name__}.*kernel 7 is gone"):
        trial.time_placement(placed, "float16", ("tvm",))  # type: ignore[arg-type]


@pytest.mark.parametrize(("objective", "graph"), [("graph", True), ("stream", False)])
def test_samples_are_of_the_mode_of_the_objective(
    monkeypatch: pytest.MonkeyPatch, objective: str, graph: bool
) -> None:
    asked: dict[str, object] = {}

    class Session:
        input_info = ()

        def time(self, repeat: int, number: int) -> list[float]:
            return [0.25] * repeat

    def compile_placement(_placed: object, **options: object) -> object:
        asked.update(options)
        return SimpleNamespace(session=Session)

    monkeypatch.setattr(BUILD, "compile_placement", compile_placement)
    placed = SimpleNamespace(plan=SimpleNamespace(objective=objective))
    samples = trial.time_placement(placed, "float16", ("tvm",))  # type: ignore[arg-type]
    assert samples == [250.0] * trial.SAMPLES
    assert asked["cuda_graph"] is graph and asked["streams"] == ("auto" if graph else 1)

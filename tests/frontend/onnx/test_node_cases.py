"""A sample of ONNX's own node tests; all of them with --slow."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("onnx")

from .node_cases import LIST, PASSED, all_cases, run_all

SAMPLE = 16


def _unexpected(names: list[str], relay: bool) -> dict[str, str]:
    """What does not pass of cases that must, with its reason."""
    cases = all_cases()
    found = [cases[name] for name in names if name in cases]  # another onnx has others
    assert len(found) > len(names) / 2
    return {o.name: f"{o.kind}: {o.reason}" for o in run_all(found, relay) if o.kind != PASSED}


def _names() -> list[str]:
    return [line.split()[0] for line in LIST.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("relay", [False, True])
def test_a_sample_passes(relay: bool) -> None:
    assert _unexpected(random.Random(relay).sample(_names(), SAMPLE), relay) == {}


@pytest.mark.slow
@pytest.mark.parametrize("relay", [False, True])
def test_all_pass(relay: bool) -> None:
    assert _unexpected(_names(), relay) == {}

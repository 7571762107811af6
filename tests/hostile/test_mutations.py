"""Mutated inputs of a fixed seed; ``tests/hostile/run.py`` tries others."""

from __future__ import annotations

import pytest

from .inputs import INPUTS, attempt

#: Half a minute for all of them on two cores.
MOST = 1000


@pytest.mark.parametrize("kind", INPUTS)
def test_mutated_inputs_are_read_or_refused(kind: str) -> None:
    found = [(n, wrong) for n in range(MOST) if (wrong := attempt(kind, f"ci {n}"))]
    assert not found, f"{len(found)} of {MOST} go wrong, the first: {found[0]}"

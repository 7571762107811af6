"""Random networks of importers' layers: Convoy on the CPU against numpy."""

from __future__ import annotations

import numpy as np
import pytest

import convoy

from ..helpers.errors import l2_error
from ..helpers.evaluate import evaluate
from ..helpers.growing import shape
from ..helpers.random_graphs import random_module


@pytest.mark.parametrize("first", [0, 5000])
def test_random_graphs_agree_with_numpy(first: int) -> None:
    mod, owners = random_module(list(range(first, first + 8)))
    assert set(owners) == set(range(8))  # each network has a result
    rng = np.random.default_rng(first)
    inputs = [rng.standard_normal(shape(x)).astype("float32") for x in mod["main"].params]
    got = convoy.build(mod, "llvm", cache=False).session()(*inputs)
    wanted = evaluate(mod, inputs)
    assert max(l2_error(g, w) for g, w in zip(got, wanted, strict=True)) < 1e-4

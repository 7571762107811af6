"""Group and instance norms on a CPU, also of data far from zero, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import convoy

from ..graph.nets import relative_error


def exact(x, gamma, beta, channel: int, groups: int, epsilon: float) -> np.ndarray:
    moved = np.moveaxis(x.astype("float64"), channel, 1)
    flat = moved.reshape(len(x), groups, -1)
    away = flat - flat.mean(-1, keepdims=True)
    normal = away / np.sqrt((away**2).mean(-1, keepdims=True) + epsilon)
    own = (1, -1, *[1] * (x.ndim - 2))
    scaled = normal.reshape(moved.shape) * gamma.reshape(own) + beta.reshape(own)
    return np.moveaxis(scaled, 1, channel)


@pytest.mark.parametrize("offset", [0.0, 100.0])
@pytest.mark.parametrize(
    ("shape", "channel", "groups", "dtype"),
    [
        ((2, 8, 5, 6), 1, 4, "float32"),
        ((2, 5, 6, 8), 3, 2, "float32"),
        ((2, 6, 7), 1, 6, "float32"),
        ((1, 4, 5, 3, 3), 1, 1, "float32"),
        ((2, 8, 5, 6), 1, 4, "float16"),
    ],
)
def test_norms_of_groups(shape, channel, groups, dtype, offset) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=shape) + offset).astype(dtype)
    gamma, beta = rng.uniform(0.5, 1.5, (2, shape[channel])).astype(dtype)
    axes = [i for i in range(1, len(shape)) if i != channel]
    builder, var = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, dtype))
    constants = relax.const(gamma), relax.const(beta)
    with builder.function("main", [var]):
        with builder.dataflow():
            if groups == shape[channel]:
                value = op.nn.instance_norm(var, *constants, channel, axes, 1e-3)
            else:
                value = op.nn.group_norm(var, *constants, groups, channel, axes, 1e-3)
            result = builder.emit_output(builder.emit(value))
        builder.emit_func_output(result)
    (found,) = convoy.build(builder.get(), "llvm", cache=False).session()(x)
    want = exact(x, *(v.astype("float64") for v in (gamma, beta)), channel, groups, 1e-3)
    assert found.dtype == dtype
    assert relative_error(found, want) < (1e-3 if dtype == "float16" else 5e-5)

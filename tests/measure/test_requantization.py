"""The reference of requantized sums against one number at a time, in float32."""

from __future__ import annotations

import numpy as np

from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.measure.problem import make_blueprint, tolerance

WORKLOAD = Workload(
    "fprop", 2, 5, 6, 8, 12, 3, 3, padding=(1, 0, 1, 1), stride=(2, 1),
    dtype="int8", out_dtype="int8", acc_dtype="int32",
    epilogue=Epilogue(bias=True, activation="clip", clip_min=-9, clip_max=118),
)  # fmt: skip


def test_every_operation_is_rounded_to_float32() -> None:
    """The operators of a network in their order; the values use the range of int8."""
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, 5, 6, 8))
    w = rng.integers(-128, 128, (12, 3, 3, 8))
    blocks = make_blueprint(WORKLOAD, rng).blocks
    (got,) = reference.full(WORKLOAD, {"x": x, "w": w, "bias": blocks["bias"]})
    padded = np.pad(x, ((0, 0), (1, 1), (0, 1), (0, 0)))
    rows = blocks["bias"].reshape(12, 4)
    for n, p, q, k in np.ndindex(*got.shape):
        patch = padded[n, 2 * p : 2 * p + 3, q : q + 3]
        total = np.float32(int((patch * w[k]).sum()) + int(rows[k, 0]))
        scale, shift, factor = rows[k, 1:].view(np.float32)
        value = np.rint(np.float32(np.float32(np.float32(total * scale) + shift) * factor))
        assert got[n, p, q, k] == min(max(value + 9, 0), 127)
    assert len(np.unique(got)) > 60


def test_blueprints_are_of_the_operands() -> None:
    blueprint = make_blueprint(WORKLOAD, np.random.default_rng(1))
    assert {name: block.dtype.name for name, block in blueprint.blocks.items()} == {
        "x": "int8", "w": "int8", "bias": "int32",
    }  # fmt: skip
    assert blueprint.blocks["x"].min() == -128 and blueprint.blocks["x"].max() == 127
    assert tolerance(WORKLOAD) == 0.0

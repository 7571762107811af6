"""Element-wise operators behind concatenated convolutions become those of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.normalize.concatenated import SplitElementwise

from ..graph.nets import run_llvm

#: What moves in front of a concatenation, and what stays behind it.
MOVED: dict[str, Any] = {
    "scale": lambda y, values: op.multiply(y, values),
    "scale in front": lambda y, values: op.multiply(values, y),
    "shift": lambda y, values: op.add(y, values),
    "scalar": lambda y, values: op.multiply(y, relax.const(0.5, "float32")),
    "relu": lambda y, values: op.nn.relu(y),
    "silu": lambda y, values: op.nn.silu(y),
    "sigmoid": lambda y, values: op.sigmoid(y),
    "clip": lambda y, values: op.clip(y, -0.5, 0.75),
}
STAYS: dict[str, Any] = {
    "square": lambda y, values: op.multiply(y, y),
    "gelu": lambda y, values: op.nn.gelu(y),
    "tanh": lambda y, values: op.tanh(y),
    "of rows": lambda y, values: op.multiply(y, relax.const(np.ones((4, 1), "float32") / 3)),
}


def network(widths: list[int], behind: list[str], **how: bool) -> Any:
    """Convolutions of one tensor side by side, and what is behind them. ``how`` has the second one
    be ``pooled``, ``read`` by others as well, or the concatenation ``read_twice``."""
    rng = np.random.default_rng(len(widths))
    x = relax.Var("x", relax.TensorType((2, 5, 4, 3), "float32"))
    builder = relax.BlockBuilder()

    def random(*shape: int) -> Any:
        return relax.const(rng.uniform(-1, 1, shape).astype("float32"))

    with builder.function("main", [x]):
        with builder.dataflow():
            parts = []
            for number, width in enumerate(widths):
                side = 2 * (number % 2) + 1
                part = builder.emit(
                    op.nn.conv2d(
                        x, random(width, side, side, 3), padding=side // 2, data_layout="NHWC",
                        kernel_layout="OHWI",
                    )
                )  # fmt: skip
                if number % 3 == 1:
                    part = builder.emit(op.add(part, random(width)))
                if how.get("pooled") and number == 1:
                    part = builder.emit(op.nn.max_pool2d(part, (1, 1), layout="NHWC"))
                parts.append(part)
            whole = y = builder.emit(op.concat(parts, axis=3))
            for name in behind:
                y = builder.emit((MOVED | STAYS)[name](y, random(sum(widths))))
            results = [y]
            results += [whole] * bool(how.get("read_twice")) + parts[1:2] * bool(how.get("read"))
            result = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    return builder.get()


def names(mod: Any) -> list[str]:
    found = [op_name(binding.value) for binding in bindings_of(mod["main"])]
    return [name.removeprefix("relax.") for name in found if name]


def check(mod: Any) -> Any:
    """The module rewritten, with the same results."""
    x = np.random.default_rng(0).standard_normal((2, 5, 4, 3)).astype("float32")
    changed = SplitElementwise()(mod)
    for got, want in zip(run_llvm(changed, x), run_llvm(mod, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return changed


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.lists(st.sampled_from(sorted(MOVED)), min_size=1, max_size=4),
)
def test_results_are_the_same_and_the_concatenation_is_last(
    widths: list[int], behind: list[str]
) -> None:
    found = names(check(network(widths, behind)))
    assert found.count("concat") == 1
    assert found[-1] == "concat" and found.count("nn.conv2d") == len(widths)


@pytest.mark.parametrize("how", ["pooled", "read", "read_twice"])
def test_others_stay(how: str) -> None:
    mod = network([4, 3, 2], ["scale", "relu"], **{how: True})
    assert names(check(mod)) == names(mod)


@pytest.mark.parametrize("name", STAYS)
def test_the_first_operators_move(name: str) -> None:
    found = names(check(network([4, 3], ["scale", name, "relu"])))
    assert found[-3:-1] == ["concat", *names(network([4, 3], [name]))[-1:]]
    assert found[-1] == "nn.relu" and found.count("multiply") >= 2

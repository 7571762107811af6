"""Running passes and comparing gradients in tests."""

from __future__ import annotations

import collections
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay import transform
from convoy.relay.ast import Call, Expr, Function, Op
from convoy.relay.ast import op as get_op
from convoy.relay.executor import create_executor
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.types import TensorType
from convoy.relay.visit import post_order
from convoy.runtime import present_device


def run_opt_pass(expr: Expr, opt_pass: transform.Pass, import_prelude: bool = False) -> Expr:
    """Run a pass on an expression, after type inference.

    Args:
        expr: A function, or the body of one.
        opt_pass: The pass.
        import_prelude: Add `relay.prelude` to the module first.
    """
    if not isinstance(opt_pass, transform.Pass):
        raise TypeError(f"a pass expected, got {type(opt_pass).__name__}")
    mod = IRModule.from_expr(expr)
    if import_prelude:
        importlib.import_module("convoy.relay.prelude").Prelude(mod)
    mod = opt_pass(transform.InferType()(mod))
    entry = mod["main"]
    return entry if isinstance(expr, Function) else entry.body


def run_infer_type(expr: Expr) -> Expr:
    """Infer the types of an expression."""
    return run_opt_pass(expr, transform.InferType())


def enabled_targets() -> list[tuple[str, Any]]:
    """Return the targets that this machine can run, each with a device."""
    found = [("llvm", tvm.cpu(0))]
    if present_device() is not None:
        found.append(("cuda", tvm.cuda(0)))
    return found


ctx_list = enabled_targets  # until TVM 0.6


def check_grad(
    func: Function,
    inputs: Sequence[np.ndarray] | None = None,
    test_inputs: Sequence[np.ndarray] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Sequence[tuple[Any, Any]] | None = None,
    executor_kind: str = "debug",
) -> None:
    """Compare the gradient of a function with differences of its values.

    Args:
        func: The function; its inputs should be float64.
        inputs: Values; None draws them from a normal distribution.
        test_inputs: Those of `inputs` to compare the gradient of; None compares all.
        eps: Half the distance between the two values of a difference.
        atol, rtol: Tolerances.
        scale, mean: Of the distribution; None is `10 * eps`.
        mode: As in `relay.transform.gradient`.
        target_devices: Pairs of a target and a device; None is `enabled_targets()`.
        executor_kind: As in `relay.create_executor`.

    Raises:
        AssertionError: Gradients that differ.
    """
    forward = run_infer_type(func)
    backward = run_infer_type(transform.gradient(forward, mode=mode))
    if inputs is None:
        size = 10 * eps if scale is None else scale
        inputs = [_np_randn_from_type(p.checked_type, size, mean) for p in forward.params]  # type: ignore[attr-defined]
    tested = inputs if test_inputs is None else test_inputs
    positions = [i for i, x in enumerate(inputs) if any(x is t for t in tested)]
    for target, device in target_devices or enabled_targets():
        run = create_executor(executor_kind, device=device, target=target).evaluate(forward)
        differentiate = create_executor(executor_kind, device=device, target=target).evaluate(
            backward
        )
        _, gradients = differentiate(*inputs)
        for i in positions:
            expected = _differences(run, inputs, inputs[i], eps)
            np.testing.assert_allclose(
                gradients[i].numpy().astype("float64"), expected, atol=atol, rtol=rtol
            )


def _differences(run: Any, inputs: Sequence[np.ndarray], x: np.ndarray, eps: float) -> np.ndarray:
    """Return the central differences of the sum of a function by the elements of an input."""
    found = np.zeros(x.shape)
    for i in np.ndindex(*x.shape):
        value = x[i]
        x[i] = value + eps
        plus = run(*inputs).numpy().astype("float64")
        x[i] = value - eps
        minus = run(*inputs).numpy().astype("float64")
        x[i] = value
        found[i] = np.sum((plus - minus) / (2 * eps))
    return found


def _np_randn_from_type(t: TensorType, scale: float = 1, mean: float = 0) -> np.ndarray:
    """Draw a tensor of a type from a normal distribution."""
    return np.asarray(mean + scale * np.random.randn(*t.concrete_shape)).astype(t.dtype)


def rand(dtype: str, *shape: int) -> Any:
    """Draw a tensor from the uniform distribution over [0, 1)."""
    return tvm.runtime.tensor(np.random.rand(*shape).astype(dtype))


def count_ops(expr: Expr) -> collections.Counter[str]:
    """Count the calls of each operator."""
    calls = (n for n in post_order(expr) if isinstance(n, Call) and isinstance(n.op, Op))
    return collections.Counter(call.op.name for call in calls)  # type: ignore[attr-defined]


class TempOpAttr:
    """Register a value for an operator, as long as a `with` lasts.

    Args:
        op_name: The operator.
        attr_key: The key, such as "FTVMLegalize".
        attr_value: The value.
    """

    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        self.op, self.attr_key, self.attr_value = get_op(op_name), attr_key, attr_value

    def __enter__(self) -> TempOpAttr:
        self._before = self.op.get_attr(self.attr_key)
        self.op.reset_attr(self.attr_key)
        self.op.set_attr(self.attr_key, self.attr_value)
        return self

    def __exit__(self, *exc: object) -> None:
        self.op.reset_attr(self.attr_key)
        if self._before is not None:
            self.op.set_attr(self.attr_key, self._before)

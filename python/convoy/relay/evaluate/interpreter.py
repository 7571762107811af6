"""Evaluation with tensors: operators run as compiled kernels, everything around them here.

A kernel is compiled once for its operator, attributes and types, for the whole process. A function
of operators alone is one kernel.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from convoy.errors import InvalidOption, UnsupportedOp
from convoy.relay import adt, ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.builder import numpy_dtype
from convoy.relay.evaluate.machine import Machine
from convoy.relay.evaluate.values import Closure, Frame
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.params import to_array
from convoy.relay.trampoline import Step
from convoy.relay.types import TensorType, TupleType, Type
from convoy.relay.visit import bind, children, free_vars, post_order

# Compiles a function without free variables to one that takes and returns tensors.
Compile = Callable[[Function], Callable[..., Any]]

_MAX_KERNELS = 1000
_kernels: OrderedDict[Any, Callable[..., Any]] = OrderedDict()


class Interpreter(Machine):
    """Evaluate on a device.

    Args:
        mod: The module.
        device: The TVM device.
        target: The target's kind, which kernels are kept by.
        compile_: Compiles kernels.
    """

    def __init__(self, mod: IRModule, device: Any, target: str, compile_: Compile) -> None:
        super().__init__(mod)
        self.device, self.target, self._compile = device, target, compile_
        self._plain: dict[Function, bool] = {}

    # ---- tensors

    def constant(self, node: ast.Constant) -> Any:
        return tvm.runtime.tensor(node.value, self.device)

    def choose(self, node: ast.If, condition: Any, frame: Frame) -> Step:
        branch = node.true_branch if condition.numpy().item() else node.false_branch
        return self.visit(branch, frame)

    def operator(self, call: ast.Call, op: ast.Op, args: list[Any]) -> Any:
        attrs = call.attrs if call.op is op else None
        types = [_type_of(a, op.name) for a in args]
        key = (op.name, repr(attrs), *types)

        def define() -> Function:
            params = [Var(f"p{i}", t) for i, t in enumerate(types)]
            return Function(params, ast.Call(op, params, attrs))

        return self._run(key, define, args)

    def enter(self, closure: Closure, args: list[Any]) -> Step:
        function = closure.function
        if self._is_plain(function) and all(_is_data(a) for a in args):
            types = [_type_of(a, closure.name) for a in args]

            def define() -> Function:
                params = [Var(f"p{i}", t) for i, t in enumerate(types)]
                renamed = bind(function.body, dict(zip(function.params, params, strict=True)))
                return Function(params, renamed)

            return self._run((function, *types), define, args)
        return (yield super().enter(closure, args))

    def _run(self, key: Any, define: Callable[[], Function], args: list[Any]) -> Any:
        """Run a kernel, compiled if it is not known yet."""
        key = (self.target, *key)
        kernel = _kernels.get(key)
        if kernel is None:
            kernel = _kernels[key] = self._compile(define())
            while len(_kernels) > _MAX_KERNELS:
                _kernels.popitem(last=False)
        _kernels.move_to_end(key)
        return _as_tuples(kernel(*args))

    def _is_plain(self, function: Function) -> bool:
        """Check for a function of operators alone, over one operator."""
        found = self._plain.get(function)
        if found is None:
            nodes = list(post_order(function.body))
            calls = [n for n in nodes if isinstance(n, ast.Call)]
            found = (
                len(calls) > 1
                and not function.type_params
                and all(isinstance(c.op, ast.Op) for c in calls)
                and all(isinstance(n, _PLAIN) for n in nodes)
                and not any(isinstance(c, ast.Op) for n in nodes for c in _values(n))
                and not free_vars(function)
            )
            self._plain[function] = found
        return found

    # ---- values of users

    def value(self, given: Any, type_: Type | None = None) -> Any:
        """Return a value for what a user passes: arrays, numbers, tuples, data, references.

        Args:
            given: What is passed.
            type_: The type of the parameter; an array that is not on a device is cast to its dtype.
        """
        if isinstance(given, (adt.RefValue, Closure)):
            return given
        if isinstance(type_, TensorType) and isinstance(given, (list, tuple)) and len(given) == 1:
            given = given[0] if type_.shape == () else given  # TVM takes it apart, too
        if isinstance(given, adt.ConstructorValue):
            return adt.ConstructorValue(
                given.tag, [self.value(f) for f in given.fields], given.constructor
            )
        if isinstance(given, ast.Constant):
            return self.constant(given)
        if _is_sequence(given):
            return tuple(self.value(field) for field in given)
        array = to_array(given)
        if type(given) in (int, float):  # which numpy makes 64-bit
            array = array.astype("int32" if isinstance(given, int) else "float32")
        if isinstance(type_, TensorType) and not hasattr(given, "numpy"):
            array = array.astype(numpy_dtype(type_.dtype))
        return tvm.runtime.tensor(array, self.device)


_PLAIN = (ast.Call, ast.Op, Var, ast.Constant, ast.Tuple, ast.TupleGetItem, ast.Let)


def _values(node: Expr) -> tuple[Expr, ...]:
    return tuple(node.args) if isinstance(node, ast.Call) else tuple(children(node))


def _is_sequence(given: Any) -> bool:
    """Check for a tuple, a list of arrays, or TVM's array of objects."""
    if isinstance(given, tuple):
        return True
    if isinstance(given, list):
        plain = (int, float, bool, np.generic, np.ndarray, list)
        return not all(isinstance(x, plain) for x in given)
    return hasattr(given, "__len__") and not hasattr(given, "shape") and not hasattr(given, "numpy")


def _is_data(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_data, value))
    return hasattr(value, "numpy")


def _type_of(value: Any, name: str) -> Type:
    """Return the type of tensors and tuples of them.

    Raises:
        UnsupportedOp: Data, a reference or a function.
    """
    if isinstance(value, tuple):
        return TupleType([_type_of(field, name) for field in value])
    if not hasattr(value, "numpy"):
        kind = "function" if isinstance(value, (Closure, Expr)) else type(value).__name__
        raise UnsupportedOp(f"{name} of a {kind}", "tensors and tuples of them")
    return TensorType(tuple(int(d) for d in value.shape), str(value.dtype))


def _as_tuples(result: Any) -> Any:
    return tuple(map(_as_tuples, result)) if isinstance(result, (list, tuple)) else result


def to_user(value: Any) -> Any:
    """Return a result as users get it: tuples as lists, which are ADT objects as in TVM 0.18.

    Raises:
        InvalidOption: A function.
    """
    if isinstance(value, (Closure, Expr)):
        raise InvalidOption("a function as the result", "tensors, tuples and data")
    return adt.ADT(0, map(to_user, value)) if isinstance(value, tuple) else value

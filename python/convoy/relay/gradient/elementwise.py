"""Gradients of elementwise operators."""

from __future__ import annotations

import math

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.gradient.common import Derivative, call, const, is_float, like, type_of
from convoy.relay.gradient.registry import no_gradient, rule


def _c(value: float, like_: Expr) -> ast.Constant:
    return const(value, type_of(like_).dtype)


def _one_minus(a: Expr, x: Expr) -> Expr:
    return call("subtract", _c(1.0, x), a)


def _square(a: Expr) -> Expr:
    return call("multiply", a, a)


def _div(a: Expr, b: Expr) -> Expr:
    return call("divide", a, b)


def _mask(condition: Expr, x: Expr) -> Expr:
    return call("cast", condition, dtype=type_of(x).dtype)


# The derivative of each operator, of its argument x and its result y.
_DERIVATIVES: dict[str, Derivative] = {
    "log": lambda x, y: _div(_c(1.0, x), x),
    "log2": lambda x, y: _div(_c(1 / math.log(2), x), x),
    "log10": lambda x, y: _div(_c(1 / math.log(10), x), x),
    "exp": lambda x, y: y,
    "sqrt": lambda x, y: _div(_c(0.5, x), y),
    "rsqrt": lambda x, y: call("multiply", _c(-0.5, x), call("multiply", y, _square(y))),
    "sigmoid": lambda x, y: call("multiply", y, _one_minus(y, x)),
    "tanh": lambda x, y: _one_minus(_square(y), x),
    "erf": lambda x, y: call(
        "multiply", _c(2 / math.sqrt(math.pi), x), call("exp", call("negative", _square(x)))
    ),
    "abs": lambda x, y: call("sign", x),
    "sin": lambda x, y: call("cos", x),
    "cos": lambda x, y: call("negative", call("sin", x)),
    "tan": lambda x, y: call("add", _c(1.0, x), _square(y)),
    "sinh": lambda x, y: call("cosh", x),
    "cosh": lambda x, y: call("sinh", x),
    "asin": lambda x, y: call("rsqrt", _one_minus(_square(x), x)),
    "acos": lambda x, y: call("negative", call("rsqrt", _one_minus(_square(x), x))),
    "atan": lambda x, y: _div(_c(1.0, x), call("add", _c(1.0, x), _square(x))),
    "asinh": lambda x, y: call("rsqrt", call("add", _square(x), _c(1.0, x))),
    "acosh": lambda x, y: call("rsqrt", call("subtract", _square(x), _c(1.0, x))),
    "atanh": lambda x, y: _div(_c(1.0, x), _one_minus(_square(x), x)),
    "nn.relu": lambda x, y: _mask(call("greater", x, call("zeros_like", x)), x),
}
_DERIVATIVES["fast_exp"] = _DERIVATIVES["exp"]
_DERIVATIVES["fast_tanh"] = _DERIVATIVES["tanh"]
_DERIVATIVES["fast_erf"] = _DERIVATIVES["erf"]


@rule(*_DERIVATIVES)
def unary(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert isinstance(node.op, ast.Op)
    return [call("multiply", grad, _DERIVATIVES[node.op.name](node.args[0], node))]


# Constant almost everywhere, or made of no numbers.
no_gradient(
    "ceil", "floor", "round", "trunc", "sign", "floor_divide", "trunc_divide", "zeros", "ones",
    "zeros_like", "ones_like", "dyn.zeros", "dyn.ones", "shape_of", "ndarray_size",
)  # fmt: skip


@rule("negative")
def negative(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [call("negative", grad)]


@rule("copy", "annotation.checkpoint", "annotation.stop_fusion", "on_device", "device_copy",
      "annotation.compiler_begin", "annotation.compiler_end")  # fmt: skip
def identity(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [grad]


@rule("nn.dropout")
def dropout(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """Dropout is the identity, as it compiles."""
    return [ast.TupleGetItem(grad, 0)]


@rule("cast")
def cast(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [call("cast", grad, dtype=type_of(node.args[0]).dtype)]


@rule("cast_like")
def cast_like(node: ast.Call, grad: Expr) -> list[Expr | None]:
    return [call("cast", grad, dtype=type_of(node.args[0]).dtype), None]


@rule("nn.leaky_relu")
def leaky_relu(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    x = node.args[0]
    rising = call("greater", x, call("zeros_like", x))
    falling = call("multiply", grad, _c(node.attrs["alpha"], x))
    return [call("where", rising, grad, falling)]


@rule("nn.prelu")
def prelu(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    x, alpha = node.args
    rank, axis = len(type_of(x).shape), int(node.attrs["axis"])
    slope = call("expand_dims", alpha, axis=1, num_newaxis=rank - 1 - axis % rank)
    rising = call("greater", x, call("zeros_like", x))
    dx = call("where", rising, grad, call("multiply", grad, slope))
    below = call("where", rising, call("zeros_like", x), call("multiply", grad, x))
    return [dx, call("sum", below, axis=[axis % rank], exclude=True)]


@rule("clip")
def clip(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert node.attrs is not None
    x = node.args[0]
    low = call("greater_equal", x, _c(node.attrs["a_min"], x))
    high = call("less_equal", x, _c(node.attrs["a_max"], x))
    return [call("where", call("logical_and", low, high), grad, call("zeros_like", grad))]


# ---- binary


@rule("add")
def add(node: ast.Call, grad: Expr) -> list[Expr | None]:
    shape = type_of(node).shape
    return [like(grad, a, shape) for a in node.args]


@rule("subtract")
def subtract(node: ast.Call, grad: Expr) -> list[Expr | None]:
    a, b = node.args
    shape = type_of(node).shape
    return [like(grad, a, shape), like(call("negative", grad), b, shape)]


@rule("multiply")
def multiply(node: ast.Call, grad: Expr) -> list[Expr | None]:
    a, b = node.args
    shape = type_of(node).shape
    return [like(call("multiply", grad, b), a, shape), like(call("multiply", grad, a), b, shape)]


@rule("divide")
def divide(node: ast.Call, grad: Expr) -> list[Expr | None]:
    a, b = node.args
    shape = type_of(node).shape
    over = call("divide", grad, b)
    below = call("negative", call("multiply", over, node))
    return [like(over, a, shape), like(below, b, shape)]


@rule("power")
def power(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """d/da is b * a^(b - 1); d/db is a^b * log(a), and 0 where a is 0."""
    a, b = node.args
    shape = type_of(node).shape
    less = call("power", a, call("subtract", b, _c(1.0, b)))
    da = call("multiply", grad, call("multiply", b, less))
    is_zero = call("equal", a, call("zeros_like", a))
    log = call("log", call("where", is_zero, call("ones_like", a), a))
    db = call("multiply", grad, call("multiply", node, log))
    return [like(da, a, shape), like(db, b, shape)]


@rule("mod", "trunc_mod", "floor_mod")
def remainder(node: ast.Call, grad: Expr) -> list[Expr | None]:
    a, b = node.args
    shape = type_of(node).shape
    times = call("divide", call("subtract", node, a), b)
    return [like(grad, a, shape), like(call("multiply", grad, times), b, shape)]


@rule("maximum", "minimum")
def extremum(node: ast.Call, grad: Expr) -> list[Expr | None]:
    """The gradient goes to the argument that is chosen, to the first one where they are equal."""
    assert isinstance(node.op, ast.Op)
    a, b = node.args
    shape = type_of(node).shape
    first = call("greater_equal" if node.op.name == "maximum" else "less_equal", a, b)
    zero = call("zeros_like", grad)
    da, db = call("where", first, grad, zero), call("where", first, zero, grad)
    return [like(da, a, shape), like(db, b, shape)]


@rule("where")
def where(node: ast.Call, grad: Expr) -> list[Expr | None]:
    condition, a, b = node.args
    zero = call("zeros_like", grad)
    shape = type_of(node).shape
    da, db = call("where", condition, grad, zero), call("where", condition, zero, grad)
    return [
        None,
        like(da, a, shape) if is_float(type_of(a)) else None,
        like(db, b, shape) if is_float(type_of(b)) else None,
    ]


@rule("full", "full_like", "dyn.full")
def full(node: ast.Call, grad: Expr) -> list[Expr | None]:
    fill = len(node.args) - 1 if node.op is ast.op("full_like") else 0
    found: list[Expr | None] = [None] * len(node.args)
    found[fill] = call("sum", grad)
    return found

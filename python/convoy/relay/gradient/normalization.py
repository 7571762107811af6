"""Gradients of normalization, by differentiating what these operators compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy.relay import ast
from convoy.relay.ast import Expr, Function
from convoy.relay.builder import var
from convoy.relay.gradient.common import call, const, type_of
from convoy.relay.gradient.registry import rule
from convoy.relay.gradient.reverse import backward
from convoy.relay.infer import infer_expr
from convoy.relay.visit import bind

Definition = Callable[[ast.Call, Sequence[Expr]], Expr]


def _differentiate(node: ast.Call, grad: Expr, define: Definition) -> list[Expr | None]:
    """Return the gradients of an operator from its definition in other operators."""
    params = [var(f"p{i}", a.checked_type) for i, a in enumerate(node.args)]
    seed = var("seed", node.checked_type)
    body = define(node, params)
    infer_expr(Function(params, body))
    found = backward(body, seed, set(params))
    args = {**dict(zip(params, node.args, strict=True)), seed: grad}
    gradients = [found.get(p) for p in params]
    return [None if g is None else bind(g, args) for g in gradients]


def _moments(x: Expr, axes: list[int]) -> tuple[Expr, Expr]:
    """Return the data less its mean, and its variance."""
    centered = call("subtract", x, call("mean", x, axis=axes, keepdims=True))
    return centered, call("mean", call("multiply", centered, centered), axis=axes, keepdims=True)


def _normalized(centered: Expr, variance: Expr, epsilon: float, dtype: str) -> Expr:
    root = call("rsqrt", call("add", variance, const(epsilon, dtype)))
    return call("multiply", centered, root)


def _affine(node: ast.Call, x: Expr, gamma: Expr, beta: Expr, axis: int, rank: int) -> Expr:
    assert node.attrs is not None
    wide = [
        call("expand_dims", p, axis=1, num_newaxis=rank - 1 - axis) if rank - 1 - axis else p
        for p in (gamma, beta)
    ]
    if node.attrs["scale"]:
        x = call("multiply", x, wide[0])
    return call("add", x, wide[1]) if node.attrs["center"] else x


def _layer(node: ast.Call, args: Sequence[Expr]) -> Expr:
    assert node.attrs is not None
    x, gamma, beta = args
    shape = type_of(node.args[0]).shape
    axis = int(node.attrs["axis"]) % len(shape)
    centered, variance = _moments(x, [axis])
    done = _normalized(centered, variance, node.attrs["epsilon"], type_of(node.args[0]).dtype)
    return _affine(node, done, gamma, beta, axis, len(shape))


def _instance(node: ast.Call, args: Sequence[Expr]) -> Expr:
    assert node.attrs is not None
    x, gamma, beta = args
    shape = type_of(node.args[0]).shape
    axis = int(node.attrs["axis"]) % len(shape)
    axes = [i for i in range(1, len(shape)) if i != axis]
    centered, variance = _moments(x, axes)
    done = _normalized(centered, variance, node.attrs["epsilon"], type_of(node.args[0]).dtype)
    return _affine(node, done, gamma, beta, axis, len(shape))


def _group(node: ast.Call, args: Sequence[Expr]) -> Expr:
    assert node.attrs is not None
    x, gamma, beta = args
    shape = type_of(node.args[0]).concrete_shape
    axis, groups = int(node.attrs["axis"]) % len(shape), int(node.attrs["num_groups"])
    apart = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
    split = call("reshape", x, newshape=apart)
    axes = [i for i in range(1, len(apart)) if i != axis]
    centered, variance = _moments(split, axes)
    done = _normalized(centered, variance, node.attrs["epsilon"], type_of(node.args[0]).dtype)
    whole = call("reshape", done, newshape=list(shape))
    return _affine(node, whole, gamma, beta, axis, len(shape))


def _batch(node: ast.Call, args: Sequence[Expr]) -> Expr:
    """Normalise with the moving mean and variance, as the operator compiles."""
    assert node.attrs is not None
    x, gamma, beta, mean, variance = args
    shape = type_of(node.args[0]).shape
    axis = int(node.attrs["axis"]) % len(shape)
    wide = [
        call("expand_dims", p, axis=1, num_newaxis=len(shape) - 1 - axis)
        if len(shape) - 1 - axis
        else p
        for p in (mean, variance)
    ]
    dtype = type_of(node.args[0]).dtype
    done = _normalized(call("subtract", x, wide[0]), wide[1], node.attrs["epsilon"], dtype)
    return ast.Tuple([_affine(node, done, gamma, beta, axis, len(shape)), mean, variance])


_DEFINITIONS: dict[str, Definition] = {
    "nn.layer_norm": _layer,
    "nn.instance_norm": _instance,
    "nn.group_norm": _group,
    "nn.batch_norm": _batch,
}


@rule(*_DEFINITIONS)
def normalization(node: ast.Call, grad: Expr) -> list[Expr | None]:
    assert isinstance(node.op, ast.Op)
    return _differentiate(node, grad, _DEFINITIONS[node.op.name])

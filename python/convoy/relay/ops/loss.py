"""Losses."""

from __future__ import annotations

from convoy.relay.ast import Call, Expr
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import TensorType, Type


@builder("nn.cross_entropy")
def cross_entropy(predictions: Expr, targets: Expr) -> Call:
    """Compute -sum(targets * log(predictions)) / batch."""
    return make_call("nn.cross_entropy", predictions, targets)


@builder("nn.cross_entropy_with_logits")
def cross_entropy_with_logits(predictions: Expr, targets: Expr) -> Call:
    """Compute `cross_entropy` of predictions that are logarithms."""
    return make_call("nn.cross_entropy_with_logits", predictions, targets)


@type_rule("nn.cross_entropy", "nn.cross_entropy_with_logits")
def infer_cross_entropy(call: Inputs) -> Type:
    call.count(2)
    x = call.tensor(0)
    call.expect(1, x)
    return TensorType((), x.dtype)


@converter("nn.cross_entropy", "nn.cross_entropy_with_logits")
def convert_cross_entropy(op: OpCall) -> RelaxExpr:
    x, targets = op.args
    batch = op.shape(0)[0]
    if op.name == "nn.cross_entropy":
        x = op.emit(relax.op.log(x))
    total = op.emit(relax.op.sum(op.emit(relax.op.multiply(x, targets))))
    return relax.op.divide(total, op.const(-batch, op.type(0).dtype))


@builder("nn.nll_loss")
def nll_loss(
    predictions: Expr,
    targets: Expr,
    weights: Expr,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Call:
    """Compute the negative log likelihood.

    Args:
        predictions: Log probabilities, (n, c, ...).
        targets: Class indices, (n, ...).
        weights: A weight per class, (c,).
        reduction: "mean", "sum" or "none".
        ignore_index: The class that contributes nothing.
    """
    attrs = {"reduction": reduction, "ignore_index": ignore_index}
    return make_call("nn.nll_loss", predictions, targets, weights, **attrs)


@type_rule("nn.nll_loss")
def infer_nll_loss(call: Inputs) -> Type:
    call.count(3)
    predictions, targets = call.tensor(0), call.tensor(1)
    reduction = call.attrs["reduction"]
    if reduction not in ("none", "sum", "mean"):
        raise call.error(f"reduction='{reduction}'", "'none', 'sum' or 'mean'")
    return TensorType(targets.shape if reduction == "none" else (), predictions.dtype)


@converter("nn.nll_loss")
def convert_nll_loss(op: OpCall) -> RelaxExpr:
    reduction = op.attrs["reduction"]
    return op.te(topi.nn.nll_loss, *op.args, reduction, int(op.attrs["ignore_index"]))

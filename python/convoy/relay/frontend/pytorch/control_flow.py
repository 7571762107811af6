"""Branches and loops of TorchScript."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr, Tuple, TupleGetItem
from convoy.relay.frontend.common import dtype_of, reshape, value_of
from convoy.relay.frontend.pytorch.node import where
from convoy.relay.frontend.pytorch.registry import Call
from convoy.relay.frontend.pytorch.values import Opaque

if TYPE_CHECKING:
    from convoy.relay.frontend.pytorch.torchscript import Script

# Steps beyond these make a module that takes minutes to compile.
_MAX_STEPS = 10_000


def branch(script: Script, node: Any) -> None:
    """Convert the branch that is taken, or both where that depends on values."""
    condition = script.values[next(iter(node.inputs())).debugName()]
    blocks = list(node.blocks())
    value = value_of(condition) if isinstance(condition, Expr) else condition
    if value is not None:
        _take(script, node, blocks[0 if bool(value) else 1])
        return
    raising = [any(n.kind() == "prim::RaiseException" for n in b.nodes()) for b in blocks]
    if any(raising) and not all(raising):  # a check of values, which the network leaves out
        _take(script, node, blocks[raising.index(False)])
        return
    results = []
    for block in blocks:
        script.block(block)
        found = [script.values[o.debugName()] for o in block.outputs()]
        results.append([_tensor(script, v, node) for v in found])
    if not results[0]:
        return
    scalar = reshape(condition, ())
    scalar = scalar if dtype_of(scalar) == "bool" else scalar.astype("bool")
    if len(results[0]) == 1:
        script.set(node, ast.If(scalar, results[0][0], results[1][0]))
        return
    both = ast.If(scalar, Tuple(results[0]), Tuple(results[1]))
    script.set(node, [TupleGetItem(both, i) for i in range(len(results[0]))])


def _tensor(script: Script, value: Any, node: Any) -> Expr:
    if value is None or isinstance(value, (list, tuple, str, Opaque)):
        raise UnsupportedOp(
            f"an if that depends on values and computes a {type(value).__name__}{where(node)}",
            "tensors",
        )
    return Call("prim::If", {}, script.context.default_dtype).tensor(value)


def _take(script: Script, node: Any, block: Any) -> None:
    script.block(block)
    outputs = list(node.outputs())
    for output, inner in zip(outputs, block.outputs(), strict=True):
        script.values[output.debugName()] = script.values[inner.debugName()]


def loop(script: Script, node: Any) -> None:
    """Unroll a loop.

    Raises:
        UnsupportedOp: A number of steps, or a condition, that is computed at run time.
    """
    count, going, *carried = (script.values[i.debugName()] for i in node.inputs())
    block = next(iter(node.blocks()))
    number, *names = (i.debugName() for i in block.inputs())
    step = 0
    limit = _known(count, node)
    while _known(going, node) and step < limit:
        if step >= _MAX_STEPS:
            raise UnsupportedOp(f"a loop of over {_MAX_STEPS} steps{where(node)}", "fewer")
        script.values[number] = step
        for name, value in zip(names, carried, strict=True):
            script.values[name] = value
        script.block(block)
        going, *carried = (script.values[o.debugName()] for o in block.outputs())
        step += 1
    for output, value in zip(node.outputs(), carried, strict=True):
        script.values[output.debugName()] = value


def _known(value: Any, node: Any) -> int:
    found = value_of(value) if isinstance(value, Expr) else value
    if found is None:
        raise UnsupportedOp(
            f"a loop whose number of steps depends on values{where(node)}",
            "a number of steps that is known",
            "Trace the model (torch.jit.trace)",
        )
    return int(found)

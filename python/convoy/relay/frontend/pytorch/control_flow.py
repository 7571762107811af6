"""Branches and loops of TorchScript."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from convoy.errors import UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import Expr, Tuple, TupleGetItem
from convoy.relay.frontend.common import dtype_of, reshape, value_of
from convoy.relay.frontend.pytorch.node import where
from convoy.relay.frontend.pytorch.registry import Call
from convoy.relay.frontend.pytorch.values import Held, Opaque

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
    scalar = reshape(condition, ())
    scalar = scalar if dtype_of(scalar) == "bool" else scalar.astype("bool")
    _both(script, node, scalar, blocks)


def _both(script: Script, node: Any, condition: Expr, blocks: Sequence[Any]) -> None:
    """Convert both branches; what either writes in place is a result of the `if` as well."""
    before, local = script.values.state(), _names(blocks)
    outputs, results, ends = [], [], []
    for block in blocks:
        script.values.restore(before, written=())
        script.block(block)
        outputs.append([script.values.held(o.debugName(), local) for o in block.outputs()])
        results.append([_tensor(script, held.value, node) for held in outputs[-1]])
        ends.append(script.values.state())
    written = {key for end in ends for key in end.written} - local
    changed = [key for key in before.values if key in written]
    for result, end in zip(results, ends, strict=True):
        result += [_tensor(script, end.values[key], node) for key in changed]
    script.values.restore(before, written={*before.written, *changed})
    values = _choice(condition, *results)
    for output, value, *held in zip(node.outputs(), values, *outputs, strict=False):
        keys = {h.key for h in held}
        name = output.debugName()
        if len(keys) == 1:
            script.values.hold(name, Held(keys.pop(), value))
        else:
            script.values.hold(name, Held(None, value))
            script.values.protect(name)
    script.values.overwrite(dict(zip(changed, values[len(outputs[0]) :], strict=True)))


def _choice(condition: Expr, first: list[Expr], second: list[Expr]) -> list[Expr]:
    """Choose each of several values by one condition."""
    if len(first) < 2:
        return [ast.If(condition, a, b) for a, b in zip(first, second, strict=True)]
    both = ast.If(condition, Tuple(first), Tuple(second))
    return [TupleGetItem(both, i) for i in range(len(first))]


def _names(blocks: Iterable[Any]) -> set[str]:
    """Return the names of all values that blocks compute."""
    nodes = [node for block in blocks for node in block.nodes()]
    inner = _names(b for node in nodes for b in node.blocks()) if nodes else set()
    return {o.debugName() for node in nodes for o in node.outputs()} | inner


def _tensor(script: Script, value: Any, node: Any) -> Expr:
    if value is None or isinstance(value, (list, tuple, str, Opaque)):
        raise UnsupportedOp(
            f"an if that depends on values and computes a {type(value).__name__}{where(node)}",
            "tensors",
        )
    return Call("prim::If", {}, script.context.default_dtype).tensor(value)


def _take(script: Script, node: Any, block: Any) -> None:
    script.block(block)
    local = _names([block])
    for output, inner in zip(node.outputs(), block.outputs(), strict=True):
        script.values.hold(output.debugName(), script.values.held(inner.debugName(), local))


def loop(script: Script, node: Any) -> None:
    """Unroll a loop.

    Raises:
        UnsupportedOp: A number of steps, or a condition, that is computed at run time.
    """
    block = next(iter(node.blocks()))
    number, *names = (i.debugName() for i in block.inputs())
    local = _names([block]) | {number, *names}
    count, going, *carried = (script.values.held(i.debugName(), local) for i in node.inputs())
    step = 0
    limit = _known(count.value, node)
    while _known(going.value, node) and step < limit:
        if step >= _MAX_STEPS:
            raise UnsupportedOp(f"a loop of over {_MAX_STEPS} steps{where(node)}", "fewer")
        script.values[number] = step
        for name, held in zip(names, carried, strict=True):
            script.values.hold(name, held)
        script.block(block)
        going, *carried = (script.values.held(o.debugName(), local) for o in block.outputs())
        step += 1
    for output, held in zip(node.outputs(), carried, strict=True):
        script.values.hold(output.debugName(), held)


def _known(value: Any, node: Any) -> int:
    found = value_of(value) if isinstance(value, Expr) else value
    if found is None:
        raise UnsupportedOp(
            f"a loop whose number of steps depends on values{where(node)}",
            "a number of steps that is known",
            "Trace the model (torch.jit.trace)",
        )
    return int(found)

"""Branches, and loops whose number of steps is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Expr, Tuple, TupleWrapper
from convoy.relay.frontend.common import concatenate, const, reshape, select, unsqueeze, value_of
from convoy.relay.frontend.onnx.registry import Node, convert

# Steps beyond these make a module that takes minutes to compile.
_MAX_STEPS = 10_000


@convert("If")
def convert_if(node: Node) -> Any:
    """Convert one branch where the condition is a constant, else both."""
    value = value_of(node[0])
    branches = [node.attrs["then_branch"], node.attrs["else_branch"]]
    if value is not None:
        return node.subgraph(branches[0 if bool(value.reshape(-1)[0]) else 1], [])
    results = [node.subgraph(b, []) for b in branches]
    if any(isinstance(r, list) or r is None for rs in results for r in rs):
        raise node.error("branches that compute sequences", "tensors")
    condition = reshape(node[0], ())
    if len(results[0]) == 1:
        return ast.If(condition, results[0][0], results[1][0])
    both = ast.If(condition, Tuple(results[0]), Tuple(results[1]))
    return TupleWrapper(both, len(results[0]))


@convert("Loop")
def loop(node: Node) -> list[Any]:
    """Unroll a loop.

    Raises:
        UnsupportedOp: A number of steps, or a condition, that is computed at run time.
    """
    body = node.attrs["body"]
    count = _MAX_STEPS
    if node.get(0) is not None:
        count = min(count, node.ints(0)[0])
    going = True
    if node.get(1) is not None:
        going = bool(node.value(1).reshape(-1)[0])
    states = list(node.inputs[2:])
    stacked: list[list[Expr]] = [[] for _ in range(len(body.output) - 1 - len(states))]
    step = 0
    while going and step < count:
        given = [const(np.asarray(step, "int64")), const(np.asarray(True)), *states]
        condition, *results = node.subgraph(body, given)
        states, scans = results[: len(states)], results[len(states) :]
        for parts, scan in zip(stacked, scans, strict=True):
            parts.append(scan)
        value = value_of(condition)
        if value is None:
            raise node.error(
                "a condition that is computed at run time",
                "a number of steps that is known",
                "Export the model with a fixed number of steps",
            )
        going = bool(value.reshape(-1)[0])
        step += 1
        if step == _MAX_STEPS:
            raise node.error(f"{_MAX_STEPS} steps", "fewer")
    if not all(stacked) and stacked:
        raise node.error("outputs of a loop of no steps", "at least one step")
    return [*states, *(_stack(parts, 0) for parts in stacked)]


def _stack(parts: list[Expr], axis: int) -> Expr:
    return concatenate([unsqueeze(p, [axis]) for p in parts], axis)


@convert("Scan")
def scan(node: Node) -> list[Any]:
    """Unroll a scan.

    Raises:
        UnsupportedOp: The form of opset 8, with a batch axis.
    """
    if node.opset < 9:
        raise node.error("opset 8", "opset 9 or newer")
    body = node.attrs["body"]
    scanned = node.attrs["num_scan_inputs"]
    count = len(node.inputs) - scanned
    states, inputs = list(node.inputs[:count]), node.inputs[count:]
    outputs = len(body.output) - count
    axes = list(node.attr("scan_input_axes") or [0] * scanned)
    directions = list(node.attr("scan_input_directions") or [0] * scanned)
    out_axes = list(node.attr("scan_output_axes") or [0] * outputs)
    out_directions = list(node.attr("scan_output_directions") or [0] * outputs)
    steps = node.shape(count)[node.axis(axes[0], node.rank(count))]
    stacked: list[list[Expr]] = [[] for _ in range(outputs)]
    for step in range(steps):
        slices = [
            select(x, a, steps - 1 - step if d else step)
            for x, a, d in zip(inputs, axes, directions, strict=True)
        ]
        results = node.subgraph(body, [*states, *slices])
        states = results[:count]
        for parts, value in zip(stacked, results[count:], strict=True):
            parts.append(value)
    joined = []
    for parts, axis, backwards in zip(stacked, out_axes, out_directions, strict=True):
        joined.append(_stack(parts[::-1] if backwards else parts, axis))
    return [*states, *joined]

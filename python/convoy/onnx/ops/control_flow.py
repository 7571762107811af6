"""If, Loop, Scan and SequenceMap: a known condition takes one branch, a known number of turns is
unrolled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import ConvoyError
from ..call import CONSTANTS, Call, Value, converter
from ..selected import check_sized

if TYPE_CHECKING:
    import onnx


def body(call: Call, graph: onnx.GraphProto, inputs: list[Value]) -> list[Value]:
    """The results of a subgraph, which sees the names around it."""
    scope = dict(call.scope)
    for value, given in zip(graph.input, inputs, strict=False):
        scope[value.name] = given
    call.importer.enter(graph, scope)
    return [check_sized(scope[value.name]) for value in graph.output]


@converter("If")
def if_(call: Call) -> Value:
    """A condition that is computed takes both branches and selects between their results."""
    condition = call.array(0)
    branches = call.attrs["then_branch"], call.attrs["else_branch"]
    if condition is not None:
        return _as_tuple(body(call, branches[0] if condition.any() else branches[1], []))
    try:
        results = [body(call, branch, []) for branch in branches]
    except ConvoyError as err:
        remedy = f"{CONSTANTS} Then one branch is left. {err.remedy}".rstrip()
        raise err.reworded(remedy=remedy) from err
    found = []
    for a, b in zip(*results, strict=True):
        if a is b:
            found.append(a)
            continue
        inner = [_described(call, value) for value in (a, b)]
        if None in inner or inner[0] != inner[1]:
            raise call.unsupported(
                f"with a computed condition and branches of {inner[0]} and {inner[1]}",
                "branches of one shape and dtype, or a condition that is known",
                CONSTANTS,
            )
        flag = call.reshape(call.value(0), ())
        found.append(call.do("Where", flag, a, b))
    return _as_tuple(found)


def _described(call: Call, value: Value) -> tuple[tuple[int, ...], str] | None:
    if value is None or isinstance(value, list):
        return None
    probe = Call(call.importer, "Identity", [value], {})
    return probe.shape(), probe.dtype()


def _as_tuple(values: list[Value]) -> Value:
    return tuple(values) if len(values) != 1 else values[0]


@converter("Loop")
def loop(call: Call) -> Value:
    """Inputs: the number of turns, a condition, and what is carried from turn to turn."""
    graph = call.attrs["body"]
    turns = int(call.constant(0, "number of turns").reshape(-1)[0]) if call.has(0) else None
    condition: Value = call.value(1) if call.has(1) else np.array(True)
    carried = list(call.inputs[2:])
    count = len(carried)
    scanned: list[list[Value]] = [[] for _ in graph.output[1 + count :]]
    # tf2onnx declares the number of the turn, a scalar of ONNX, as a vector.
    one = (1,) * len(graph.input[0].type.tensor_type.shape.dim)
    turn = 0
    while turns is None or turn < turns:
        if isinstance(condition, np.ndarray) and not condition.any():
            break
        known = isinstance(condition, np.ndarray)
        if not known and (turns is None or scanned):
            raise call.unsupported(
                "whose condition depends on the model's inputs",
                "a known number of turns, and no results of each turn",
            )
        results = body(call, graph, [np.full(one, turn, "int64"), condition, *carried])
        new = results[1 : 1 + count]
        if not known:  # after its end a loop keeps what it has
            new = [
                call.do("Where", call.reshape(condition, ()), a, b)
                for a, b in zip(new, carried, strict=True)
            ]
            results[0] = call.do("And", condition, results[0])
        condition, carried = results[0], new
        for values, value in zip(scanned, results[1 + count :], strict=True):
            values.append(value)
        turn += 1
    joined = [_stacked(call, values, 0, graph.output[1 + count + i])
              for i, values in enumerate(scanned)]  # fmt: skip
    return _as_tuple([*carried, *joined])


def _stacked(call: Call, values: list[Value], axis: int, declared: onnx.ValueInfoProto) -> Value:
    """Results of all turns along a new axis."""
    from onnx import helper

    if not values:
        tensor = declared.type.tensor_type
        sizes = [d.dim_value for d in tensor.shape.dim]
        sizes.insert(axis, 0)
        return np.zeros(sizes, helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    parts = [call.do("Unsqueeze", value, np.array([axis])) for value in values]
    return call.do("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


@converter("Scan")
def scan(call: Call) -> Value:
    """States and slices of sequences in, states and slices out; before opset 9 for each of a
    batch."""
    graph = call.attrs["body"]
    if call.version < 9:
        return _batched_scan(call)
    sequences = int(call.attrs["num_scan_inputs"])
    states = list(call.inputs[: len(call.inputs) - sequences])
    inputs = call.inputs[len(states) :]
    outputs = len(graph.output) - len(states)

    def attribute(name: str, count: int) -> list[int]:
        return [int(v) for v in call.attrs.get(name, (0,) * count)]

    in_axes, in_turned = (
        attribute("scan_input_axes", sequences),
        attribute("scan_input_directions", sequences),
    )
    out_axes, out_turned = (
        attribute("scan_output_axes", outputs),
        attribute("scan_output_directions", outputs),
    )
    shapes = [call.shape(len(states) + i) for i in range(sequences)]
    steps = shapes[0][in_axes[0]]
    found: list[list[Value]] = [[] for _ in range(outputs)]
    for t in range(steps):
        slices = [
            call.do(
                "Gather", value, np.array(steps - 1 - t if in_turned[i] else t),
                axis=in_axes[i] % len(shapes[i]),
            )
            for i, value in enumerate(inputs)
        ]  # fmt: skip
        results = body(call, graph, [*states, *slices])
        states = results[: len(states)]
        for values, value in zip(found, results[len(states) :], strict=True):
            values.append(value)
    joined = []
    for i, values in enumerate(found):
        axis = out_axes[i]
        if axis < 0 and values:
            axis += len(_described(call, values[0])[0]) + 1  # type: ignore[index]
        values = values[::-1] if out_turned[i] else values
        joined.append(_stacked(call, values, axis, graph.output[len(states) + i]))
    return _as_tuple([*states, *joined])


def _batched_scan(call: Call) -> Value:
    """Opset 8: the first axis is the batch, the second one the sequence."""
    if call.has(0):
        raise call.unsupported("of opset 8 with lengths of sequences", "none, or opset 9")
    sequences = int(call.attrs["num_scan_inputs"])
    turned = [int(v) for v in call.attrs.get("directions", (0,) * sequences)]
    values = list(call.inputs[1:])
    batch = call.shape(1)[0]
    found: list[list[Value]] = []
    for b in range(batch):
        one = [call.do("Gather", value, np.array(b), axis=0) for value in values]
        attrs = {
            "body": call.attrs["body"], "num_scan_inputs": sequences,
            "scan_input_directions": turned,
        }  # fmt: skip
        inner = Call(call.importer, "Scan", one, attrs, 9, call.outputs, call.name, call.scope)
        result = scan(inner)
        found.append(list(result) if isinstance(result, tuple) else [result])
    parts = zip(*found, strict=True)
    return _as_tuple(
        [
            call.do("Concat", *(call.do("Unsqueeze", v, np.array([0])) for v in part), axis=0)
            for part in parts
        ]
    )


@converter("SequenceMap")
def sequence_map(call: Call) -> Value:
    """Sequences of the results of a graph for each element; tensors are for all elements."""
    graph, first = call.attrs["body"], call.inputs[0]
    if not isinstance(first, list):
        raise call.unsupported("of a value that is no known sequence", "a sequence")
    if any(isinstance(v, list) and len(v) != len(first) for v in call.inputs):
        raise call.unsupported("of sequences of several lengths", "one length")
    found: list[list[Value]] = [[] for _ in graph.output]
    for i in range(len(first)):
        values = [value[i] if isinstance(value, list) else value for value in call.inputs]
        for results, value in zip(found, body(call, graph, values), strict=True):
            results.append(value)
    return found[0] if len(found) == 1 else tuple(found)

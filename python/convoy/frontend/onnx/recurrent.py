"""LSTM and GRU as one operator, where their cells are PyTorch's; ``convoy.onnx`` unrolls others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...onnx.call import CONVERTERS, Call, Converter
from ...ops.recurrent import GATES, recurrent

#: Where the gates of ``convoy.recurrent`` are among ONNX's: i, o, f, c and z, r, h.
_ORDER = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2)}
_ACTIVATIONS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh")}


def _is_plain(call: Call, cell: str) -> bool:
    """Whether a layer has no lengths, peepholes, bounds and activations of its own."""
    attrs, directions = call.attrs, call.shape(1)[0]
    names = [str(name).lower() for name in attrs.get("activations", ())]
    if names and names != [*_ACTIVATIONS[cell] * directions]:
        return False
    if cell == "gru" and not attrs.get("linear_before_reset", 0):
        return False
    lengths = call.array(4)
    all_steps = lengths is not None and bool((lengths == call.shape(0)[_time(call)]).all())
    known = all_steps or not call.has(4)
    return known and not (call.has(7) or attrs.get("clip") or attrs.get("input_forget", 0))


def _time(call: Call) -> int:
    """The axis of the steps."""
    return 1 if call.attrs.get("layout", 0) else 0


def _convert(call: Call, cell: str) -> Any:
    if len(call.shape()) != 3 or not _is_plain(call, cell):
        return CONVERTERS["", call.op](call)
    do, order = call.do, _ORDER[cell]
    directions, hidden = call.shape(1)[0], call.shape(2)[-1]
    width = GATES[cell] * hidden
    rows = np.concatenate([np.arange(hidden) + gate * hidden for gate in order])
    by_time: dict[str, Any] = {"perm": (1, 0, 2)}
    x = do("Transpose", call.value(0), **by_time) if _time(call) else call.value(0)
    time, batch, features = (int(size) for size in do("Shape", x))

    def ordered(value: Any, first: int = 0) -> Any:
        return do("Gather", value, rows + first, axis=1)

    weights = call.reshape(ordered(call.value(1)), (directions * width, features))
    projected = do("MatMul", x, do("Transpose", weights, perm=(1, 0)))
    dtype = call.const(0).dtype
    bias: Any = np.zeros((directions, width), dtype)
    if call.has(3):
        of_input = call.reshape(ordered(call.value(3)), (directions * width,))
        projected, bias = do("Add", projected, of_input), ordered(call.value(3), width)
    zeros = np.zeros((directions, batch, hidden), dtype)
    states = []
    for index in (5, 6)[: 2 if cell == "lstm" else 1]:
        state = call.value(index) if call.has(index) else zeros
        moved = _time(call) and call.has(index)
        states.append(do("Transpose", state, **by_time) if moved else state)
    operands = [call.expr(v) for v in (projected, ordered(call.value(2)), bias, *states)]
    backwards = call.attrs.get("direction", "forward") == "reverse"
    whole = call.emit(recurrent(*operands, cell=cell, reversed=backwards))
    y, *last = call.items(whole, 1 + len(states))
    y = call.reshape(y, (time, batch, directions, hidden))
    if _time(call):
        last = [do("Transpose", state, **by_time) for state in last]
        return (do("Transpose", y, perm=(1, 0, 2, 3)), *last)
    return (do("Transpose", y, perm=(0, 2, 1, 3)), *last)


#: By domain and operator.
NATIVE: Mapping[tuple[str, str], Converter] = {
    ("", "LSTM"): lambda call: _convert(call, "lstm"),
    ("", "GRU"): lambda call: _convert(call, "gru"),
}

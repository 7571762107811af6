"""Recurrent networks: the steps of their cells, one after the other."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter
from .unrolled import Cell, Unrolled


@converter("LSTM")
def lstm(call: Call) -> Value:
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""

    def step(cell: Cell, x: Value, state: list[Value]) -> list[Value]:
        do, (f, g, h) = call.do, cell.activations
        before, memory = state
        i, o, forget, c = cell.gates(do("Add", x, do("MatMul", before, cell.r)), 4)
        if cell.peepholes:
            i = do("Add", i, do("Mul", cell.peepholes[0], memory))
            forget = do("Add", forget, do("Mul", cell.peepholes[2], memory))
        i = f(i)
        kept = do("Sub", np.ones((), call.const(0).dtype), i)
        forget = kept if call.attrs.get("input_forget", 0) else f(forget)
        memory = do("Add", do("Mul", forget, memory), do("Mul", i, g(c)))
        if cell.peepholes:
            o = do("Add", o, do("Mul", cell.peepholes[1], memory))
        return [do("Mul", f(o), h(memory)), memory]

    return Unrolled(call, 4, step, ("Sigmoid", "Tanh", "Tanh"), 2).run()


@converter("GRU")
def gru(call: Call) -> Value:
    """Gates in the order update, reset, hidden."""
    late = bool(call.attrs.get("linear_before_reset", 0))

    def step(cell: Cell, x: Value, state: list[Value]) -> list[Value]:
        do, (f, g), h = call.do, cell.activations, cell.hidden
        (before,) = state
        xz, xr, xh = cell.gates(x, 3)
        part = call.do("Slice", cell.r, np.array([0]), np.array([2 * h]), np.array([1]))
        last = call.do("Slice", cell.r, np.array([2 * h]), np.array([3 * h]), np.array([1]))
        z, r = cell.gates(do("MatMul", before, part), 2)
        z, r = f(do("Add", xz, z)), f(do("Add", xr, r))
        if late:
            inner = do("MatMul", before, last)
            inner = do("Add", inner, cell.bias[2]) if cell.bias else inner
            new = do("Mul", r, inner)
        else:
            new = do("MatMul", do("Mul", r, before), last)
        new = g(do("Add", xh, new))
        rest = do("Sub", np.ones((), call.const(0).dtype), z)
        return [do("Add", do("Mul", rest, new), do("Mul", z, before))]

    return Unrolled(call, 3, step, ("Sigmoid", "Tanh"), 1, late).run()


@converter("RNN")
def rnn(call: Call) -> Value:
    def step(cell: Cell, x: Value, state: list[Value]) -> list[Value]:
        (f,) = cell.activations
        return [f(call.do("Add", x, call.do("MatMul", state[0], cell.r)))]

    return Unrolled(call, 1, step, ("Tanh",), 1).run()

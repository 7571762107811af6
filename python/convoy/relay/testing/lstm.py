"""An LSTM, unrolled over its steps."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr, Function, Tuple, TupleGetItem, op_call
from convoy.relay.builder import ScopeBuilder, var
from convoy.relay.module import IRModule
from convoy.relay.testing.init import create_workload
from convoy.relay.types import TensorType, TupleType


def lstm_cell(
    num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = ""
) -> Function:
    """Make one step: a function of the input, the states (h, c), and the weights and biases.

    Args:
        num_hidden: The size of the states and of the input.
        batch_size: The number of sequences.
        dtype: The dtype.
        name: The start of the parameters' names.
    """
    state = TensorType((batch_size, num_hidden), dtype)
    weight = TensorType((4 * num_hidden, num_hidden), dtype)
    bias = TensorType((4 * num_hidden,), dtype)
    inputs, states = var(f"{name}inputs", state), var(f"{name}states", TupleType([state, state]))
    params = [
        var(f"{name}{part}", type_)
        for part, type_ in (
            ("i2h_weight", weight), ("i2h_bias", bias), ("h2h_weight", weight), ("h2h_bias", bias)
        )
    ]  # fmt: skip
    scope = ScopeBuilder()

    def gates(data: Expr, at: int) -> Expr:
        dense = op_call("nn.dense", [data, params[at]], units=4 * num_hidden)
        return op_call("nn.bias_add", [dense, params[at + 1]])

    total = scope.let("gates", gates(inputs, 0) + gates(TupleGetItem(states, 0), 2))
    parts = scope.let("parts", op_call("split", [total], indices_or_sections=4, axis=1))
    forget, entry, out = (
        scope.let(label, op_call("sigmoid", [TupleGetItem(parts, i)]))
        for i, label in ((1, "forget"), (0, "input"), (3, "output"))
    )
    change = scope.let("change", op_call("tanh", [TupleGetItem(parts, 2)]))
    cell = scope.let("cell", forget * TupleGetItem(states, 1) + entry * change)
    hidden = scope.let("hidden", out * op_call("tanh", [cell]))
    scope.ret(Tuple([hidden, Tuple([hidden, cell])]))
    result = TupleType([state, TupleType([state, state])])
    return Function([inputs, states, *params], scope.get(), result)


def get_net(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> Function:
    """Make the unrolled network: `data`, `data1`, ... are the inputs of its steps."""
    state = TensorType((batch_size, num_hidden), dtype)
    zeros = op_call("zeros", [], shape=(batch_size, num_hidden), dtype=dtype)
    states: Expr = Tuple([zeros, zeros])
    weight = TensorType((4 * num_hidden, num_hidden), dtype)
    bias = TensorType((4 * num_hidden,), dtype)
    params = [
        var("i2h_weight", weight), var("i2h_bias", bias),
        var("h2h_weight", weight), var("h2h_bias", bias),
    ]  # fmt: skip
    scope = ScopeBuilder()
    out: Expr = zeros
    inputs = []
    for step in range(iterations):
        data = var(f"data{step or ''}", state)
        inputs.append(data)
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm{step}_")
        call = scope.let(f"step{step}", cell(data, states, *params))
        out, states = TupleGetItem(call, 0), TupleGetItem(call, 1)
    scope.ret(out)
    return Function([*inputs, *params], scope.get())


def get_workload(
    iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32"
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    return create_workload(get_net(iterations, num_hidden, batch_size, dtype))

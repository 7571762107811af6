"""The JSON that scripts read a built network's inputs and outputs from."""

from __future__ import annotations

import json
from typing import Any

from convoy.ir.artifact import Meta


def graph_json(meta: Meta) -> str:
    """Describe a network as TVM's graph executor does: a node for each input, one that computes.

    `arg_nodes` are the inputs, `heads` the outputs, which the last node has. The lists below
    `attrs` have an entry for each of them.
    """
    inputs, outputs = meta.inputs, meta.outputs
    computing = {
        "op": "tvm_op",
        "name": meta.function,
        "attrs": {
            "func_name": meta.function,
            "num_inputs": str(len(inputs)),
            "num_outputs": str(len(outputs)),
            "flatten_data": "0",
        },
        "inputs": [[i, 0, 0] for i in range(len(inputs))],
    }
    entries = [*inputs, *outputs]
    lists: dict[str, tuple[str, list[Any]]] = {
        "dltype": ("list_str", [t.dtype for t in entries]),
        "shape": ("list_shape", [list(t.shape) for t in entries]),
        "storage_id": ("list_int", list(range(len(entries)))),
    }
    return json.dumps(
        {
            "nodes": [*({"op": "null", "name": t.name, "inputs": []} for t in inputs), computing],
            "arg_nodes": list(range(len(inputs))),
            "heads": [[len(inputs), i, 0] for i in range(len(outputs))],
            "attrs": {name: list(value) for name, value in lists.items()},
            "node_row_ptr": [*range(len(inputs) + 1), len(entries)],
        }
    )

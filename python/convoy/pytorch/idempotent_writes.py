"""Writes to parameters and buffers that are idempotent: the second call would write the same.

Some modules compute weights when they are called, such as one convolution from the three that were
trained, or clamp them. A compiled function need not write what each call would write again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node


def remove_idempotent_writes(program: ExportedProgram) -> None:
    """Remove from a functional program the writes whose values depend on no input and are the same
    in the second call as in the first."""
    signature = program.graph_signature
    written = {**signature.buffers_to_mutate, **signature.parameters_to_mutate}
    if not written or _depends_on_inputs(program, written):
        return
    state = {**program.constants, **program.state_dict}
    try:
        first = _written(program, written, state)
        second = _written(program, written, {**state, **first})
    except Exception:  # operators of a library may be known to traces alone
        return
    if all(torch.equal(first[name], second[name]) for name in first):
        (output,) = program.graph.find_nodes(op="output")
        output.args = ([one for one in output.args[0] if _name(one) not in written],)
        kept = [spec for spec in signature.output_specs if spec.arg.name not in written]
        signature.output_specs = kept
        program.graph.eliminate_dead_code()


def _depends_on_inputs(program: ExportedProgram, written: Mapping[str, str]) -> bool:
    """Whether a written value depends on inputs."""
    inputs = set(program.graph_signature.user_inputs)
    found: set[Node] = set()
    for node in program.graph.nodes:
        if node.name in inputs or any(one in found for one in node.all_input_nodes):
            if node.name in written:
                return True
            found.add(node)
    return False


def _written(
    program: ExportedProgram, written: Mapping[str, str], state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """What a call writes, by the names of parameters and buffers."""
    signature = program.graph_signature
    held = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held |= signature.inputs_to_lifted_tensor_constants
    graph = copy.deepcopy(program.graph)
    (output,) = graph.find_nodes(op="output")
    output.args = ([one for one in output.args[0] if _name(one) in written],)
    graph.eliminate_dead_code()
    values = [
        state[held[node.name]].detach() if node.name in held else None
        for node in graph.find_nodes(op="placeholder")
    ]
    names = [written[one.name] for one in output.args[0]]
    with torch.no_grad():
        results = torch.fx.Interpreter(GraphModule(program.graph_module, graph)).run(*values)
    return dict(zip(names, results, strict=True))


def _name(value: object) -> str:
    return value.name if isinstance(value, Node) else ""

"""Names of a program's inputs."""

from __future__ import annotations

from collections.abc import Sequence

from torch.export import ExportedProgram


def name_inputs(program: ExportedProgram, names: Sequence[str]) -> None:
    """Give the inputs of a program names, with a number behind one that is taken.

    Args:
        program: Changed in place.
        names: For each input in order; none leaves them as they are.
    """
    if not names:
        return
    signature = program.graph_signature
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    inputs = signature.user_inputs
    taken = placeholders.keys() - set(inputs)  # parameters and buffers
    renamed = {}
    for old, wanted in zip(inputs, names, strict=True):
        new, count = wanted, 0
        while new in taken:
            count += 1
            new = f"{wanted}_{count}"
        taken.add(new)
        renamed[old] = placeholders[old].name = new
    for spec in (*signature.input_specs, *signature.output_specs):
        spec.arg.name = renamed.get(spec.arg.name, spec.arg.name)

"""Changes of a tensor's axes in place, such as ``t_`` and ``unsqueeze_``, as views."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node


def to_views(program: ExportedProgram) -> None:
    """Let what follows a change of axes in place read a view instead: PyTorch's decompositions take
    the change for a write, of which they find no value."""
    graph = program.graph
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in list(graph.nodes):
        view = _view(node)
        if view is None:
            continue
        node.target = view
        changed = node.args[0]
        for user in [one for one in changed.users if order[one] > order[node]]:
            user.replace_input_with(changed, node)
        for spec in program.graph_signature.output_specs:
            if spec.arg.name == changed.name:
                spec.arg.name = node.name
    program.graph_module.recompile()


def _view(node: Node) -> OpOverload | None:
    """The operator that gives as a view what a call does in place."""
    if torch.Tag.inplace_view not in getattr(node.target, "tags", ()):
        return None
    name = node.target.overloadpacket.__name__
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    overloads = [getattr(packet, one) for one in packet.overloads()] if packet is not None else []
    taken = _parameters(node.target)
    return next((one for one in overloads if _parameters(one) == taken), None)


def _parameters(operator: OpOverload) -> list[tuple[str, str]]:
    return [(one.name, str(one.type)) for one in operator._schema.arguments]

"""What a traced program is imported from, as texts and hashes for the cache of builds.

Taken before operators are decomposed and converted, which takes longer than tracing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from ..build_cache.source import array_hash
from ..threads import in_threads

#: Namespaces of operators that come with PyTorch; what others decompose into may change.
_OWN = ("aten", "prims", "prim", "higher_order")


def program_content(program: ExportedProgram, names: Sequence[str] = ()) -> list[str] | None:
    """Equal only for programs that are imported as the same module: operators with their arguments,
    types and strides, the names that inputs are given, and the elements of parameters, buffers and
    constants.

    None where an operator does not come with PyTorch, or a constant is no dense tensor.
    """
    graphs = [m for m in program.graph_module.modules() if isinstance(m, GraphModule)]
    nodes = [node for module in graphs for node in module.graph.nodes]
    held = {**program.state_dict, **program.constants}
    tensors = [*held.values()]
    if not all(map(_is_own, nodes)) or not all(map(_is_dense, tensors)):
        return None
    texts = [
        torch.__version__,
        str(torch.get_default_dtype()),
        str(list(names)),
        str(program.graph_signature),
        *(str(module.graph) for module in graphs),
        *(_described(node.meta.get("val")) for node in nodes),
        *(f"{name} {_described(tensor)}" for name, tensor in held.items()),
    ]
    graph = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return [graph, *in_threads(_elements, tensors)]


def _is_own(node: Node) -> bool:
    if node.op != "call_function":
        return True
    namespace = getattr(node.target, "namespace", None)
    if namespace is not None:
        return namespace in _OWN
    return getattr(node.target, "__module__", "") in ("_operator", "math", "builtins")


def _is_dense(constant: Any) -> bool:
    return isinstance(constant, torch.Tensor) and constant.layout == torch.strided


def _described(value: Any) -> str:
    """Types, shapes and strides of the tensors in a value; all else as it is."""
    leaves, structure = pytree.tree_flatten(value)
    return f"{structure} {[_type(leaf) for leaf in leaves]}"


def _type(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    strides = value.stride() if _is_dense(value) else value.layout
    return value.dtype, tuple(value.shape), strides, value.device


def _elements(tensor: torch.Tensor) -> str:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return array_hash(flat.view(torch.uint8).numpy())

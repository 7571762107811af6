"""TVM's kernels that compute gates of channels and scale an image by them.

If the last GEMM of a squeeze-and-excitation block is left to TVM, it is part of such a kernel
(lower/channel_gates.py).
"""

from __future__ import annotations

from tvm import relax

from ..cost import native
from ..graph.expr import op_name, shape_of
from ..graph.function import bindings_of, main_function
from ..partition.match_graph import MatchGraph, Op, Subgraph
from ..partition.operations import FUSED


class ChannelGates:
    """The kernels of a match graph without prices."""

    def __init__(self, graph: MatchGraph) -> None:
        self._graph = graph
        alone = (s for s in graph.subgraphs if not s.is_alternative)
        self._covered = {name for subgraph in alone for name in subgraph.ops}
        bindings = bindings_of(main_function(graph.module)[1]) if graph.module else ()
        self._values = {binding.var.name: binding.value for binding in bindings}
        self._readers: dict[str, list[Op]] = {}
        for op in graph.ops:
            for name in op.inputs:
                self._readers.setdefault(name, []).append(op)

    def of(self, gemm: Subgraph) -> tuple[tuple[str, ...], float] | None:
        """The operations of the kernel that scales an image by what is computed of a GEMM, and
        its time; None where nothing does, or where a kernel should not do both."""
        if not self._values or len(gemm.outputs) != 1 or not native.has_constant_weights(gemm):
            return None
        behind = self._behind(gemm.outputs[0])
        if not behind:
            return None
        workload, last = gemm.require_workload(), behind[-1]
        gates_us = native.gates_us(workload, last.elements // (workload.n * workload.k))
        if gates_us is None:
            return None
        # Without bytes of its own, the image is counted at what is computed of it.
        moving_us = (
            native.moving_us(last.moved_bytes, self._graph.device) if last.moved_bytes else 0
        )
        return (*gemm.ops, *(op.name for op in behind)), gates_us + moving_us

    def _behind(self, name: str) -> list[Op]:
        """The operations that a value passes through until it scales an image; none where it does
        not."""
        found: list[Op] = []
        while (op := self._only_reader(name)) is not None:
            found.append(op)
            call = self._values[op.name]
            if _scales(call, name):
                return found
            if len(op.inputs) != 1 or op_name(call) not in FUSED:
                return []
            name = op.name
        return []

    def _only_reader(self, name: str) -> Op | None:
        """The operation that alone reads a value, and that no library takes."""
        readers = self._readers.get(name, [])
        alone = len(readers) == 1 and name not in self._graph.results
        return readers[0] if alone and readers[0].name not in self._covered else None


def _scales(call: relax.Expr, name: str) -> bool:
    """Return whether a call multiplies the channels of images by values of this name."""
    if op_name(call) != "relax.multiply":
        return False
    images, *_, channels = shape = shape_of(call)
    gates = [arg for arg in call.args if isinstance(arg, relax.Var) and arg.name == name]
    own = (images, *[1] * (len(shape) - 2), channels)
    return len(gates) == 1 and len(shape) > 2 and shape_of(gates[0]) == own

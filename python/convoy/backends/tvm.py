"""TVM's kernels: the workload's operators stay in the graph and are compiled with it."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.candidate import Candidate, Decline
from ..ir.device import Device
from ..ir.dtypes import accumulator
from ..ir.workload import Workload
from .base import Backend, Binary

NATIVE = "native"


class TvmBackend(Backend):
    """Declines nothing that the graph can express, and is rarely fast: no tensor cores.

    Its one candidate has nothing to build. A subgraph placed here is not rewritten;
    lower/executable.py compiles its operators with float32 accumulation and convoy's own schedules.
    """

    name = "tvm"

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        if workload.op == "stem" or workload.is_back_to_back:
            reason = f"op {workload.op}"
            return self.decline(reason, "its operations are kernels of their own")
        if workload.acc_dtype != accumulator(workload.dtype):
            return self.decline(
                f"accumulation in {workload.acc_dtype}", "Ask for float32 accumulation"
            )
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        declined = self.accepts(workload, device)
        if declined is not None:
            return declined
        notes = ("no tensor cores",) if not workload.is_depthwise else ()
        return [Candidate(self.name, NATIVE, priority=100, notes=notes)]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Nothing: the kernel is compiled with the graph."""
        return Binary(entry={}, blobs={})

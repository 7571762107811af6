"""Tasks: the convolutions and GEMMs of a network, each of which is tuned by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from convoy.backends import registry
from convoy.ir.candidate import Candidate
from convoy.ir.defaults import LIBRARIES
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.relay.ast import Op
from convoy.relay.build import device_target, from_attributes, static_graph
from convoy.relay.convert import to_relax
from convoy.relay.infer import infer_module
from convoy.relay.module import as_module
from convoy.tune.space import propose

# Operators that TVM's scripts select tasks by, and those of workloads.
_OPERATORS = {
    "nn.conv": ("fprop", "dgrad", "wgrad"),
    **dict.fromkeys(("nn.dense", "nn.matmul", "nn.batch_matmul"), ("matmul",)),
}


@dataclass(frozen=True)
class Task:
    """A workload to tune.

    Attributes:
        workload: The convolution or GEMM with what is fused into it.
        target: The target that it was extracted for.
        backends: The libraries whose candidates are measured.
        weight: 1.
    """

    workload: Workload
    target: Any = field(compare=False)
    backends: tuple[str, ...] = LIBRARIES
    weight: ClassVar[int] = 1

    @property
    def kind(self) -> str:
        """ "cuda" or "llvm"."""
        return device_target(self.target)

    @property
    def name(self) -> str:
        """The operator with its filter and channels."""
        return f"{self.workload.op} {self.workload.label}"

    desc = func_name = task_name = name

    @property
    def workload_key(self) -> str:
        """The workload in one line; equal for equal workloads."""
        return self.workload.key

    @property
    def args(self) -> tuple[tuple[str, tuple[int, ...], str], ...]:
        """The operands: ("TENSOR", shape, dtype) of each."""
        shapes = self.workload.operand_shapes()
        return tuple(("TENSOR", tuple(shape), dtype) for _, shape, dtype in shapes)

    @property
    def flop(self) -> float:
        """Multiplications and additions."""
        return float(self.workload.flops)

    @property
    def compute_dag(self) -> str:
        """The operands and the operator, for readers."""
        lines = [f"{n}: {tuple(s)} {d}" for n, s, d in self.workload.operand_shapes()]
        return "\n".join([*lines, self.workload_key])

    @cached_property
    def config_space(self) -> tuple[Candidate, ...] | tuple[None]:
        """The candidates; one place for TVM's own kernel where there are none, as on a CPU."""
        if self.kind != "cuda":
            return (None,)
        backends = [registry.get(name) for name in self.backends]
        return propose(self.workload, backends, _device()).candidates or (None,)


def _device() -> Device:
    from convoy.runtime import present_device

    return present_device() or Device()


def tasks_of(
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None = None,
    ops: Collection[Any] | None = None,
) -> list[Task]:
    """Return the tasks of a network, without duplicates, in program order.

    Args:
        mod: A module or a function, as `relay.build` takes it.
        target: As `relay.build` takes it.
        params: Values by name.
        ops: Operators, or their names, to which tasks are restricted: convolutions, `nn.dense`,
            `nn.matmul`, `nn.batch_matmul`.

    Raises:
        Error: Those of `relay.build` before it compiles.
    """
    from convoy.pipeline import workloads_of

    module = infer_module(as_module(mod))
    options: dict[str, Any] = {}
    from_attributes(module, device_target(target), options)
    backends = tuple(options.get("backends", LIBRARIES))
    relax = to_relax(static_graph(module, params), params)
    found = workloads_of(relax, precision=options["precision"], backends=backends)
    names = [op.name if isinstance(op, Op) else str(op) for op in ops or ()]
    kept = {
        kind
        for prefix, kinds in _OPERATORS.items()
        if any(name.startswith(prefix) for name in names)
        for kind in kinds
    }
    measured = tuple(name for name in backends if name != "tvm")  # TVM compiles its own kernels
    return [Task(w, target, measured) for w in found if ops is None or w.op in kept]

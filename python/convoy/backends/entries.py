"""Entries of a plan's kernels for the C++ runtime."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from ..ir.candidate import Candidate
from ..ir.plan import Plan
from ..ir.workload import Workload
from .base import Backend


@dataclass(frozen=True)
class Entries:
    """One entry for each function of a plan, with its ``symbol``; ``blobs`` are the kernel
    libraries that they reference, by content hash."""

    entries: list[dict[str, object]]
    blobs: dict[str, bytes]


def build_entries(
    plan: Plan,
    backends: Mapping[str, Backend],
    constant_weights: Container[str] = (),
    row_strides: Mapping[str, Mapping[str, int]] | None = None,
) -> Entries:
    """Build the chosen candidates of a plan, those that need compiling together first.

    Args:
        constant_weights: Functions whose weights nothing writes while the module runs.
        row_strides: Those of operands that are slices of wider tensors, by function and operand.

    Raises CompileFailed or LibraryMissing.
    """
    jobs: dict[str, list[tuple[Workload, Candidate]]] = {}
    for choice in plan.choices:
        candidate = choice.chosen.candidate
        jobs.setdefault(candidate.backend, []).append((choice.workload, candidate))
    for name, wanted in jobs.items():
        backends[name].prepare(wanted, plan.device)
    entries: list[dict[str, object]] = []
    blobs: dict[str, bytes] = {}
    for symbol, choice in plan.functions().items():
        candidate = choice.chosen.candidate
        backend, arguments = backends[candidate.backend], (choice.workload, candidate, plan.device)
        strides = (row_strides or {}).get(symbol)
        binary = backend.build_sliced(*arguments, strides) if strides else backend.build(*arguments)
        constant = {"constant_weights": True} if symbol in constant_weights else {}
        entries.append({**binary.entry, **constant, "symbol": symbol})
        blobs.update(binary.blobs)
    return Entries(entries, blobs)

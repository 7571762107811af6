"""A plan as rows of a table: what runs where, at which cost, and what else was possible."""

from __future__ import annotations

from ..workload import Workload
from .plan import Choice, Plan

COLUMNS = (
    "op",
    "shape",
    "epilogue",
    "backend",
    "kernel",
    "kernel-only us",
    "end-to-end us",
    "runner-up",
    "margin",
    "count",
    "declined by",
)


def shape_text(workload: Workload) -> str:
    """Forward sizes in the order people say them: input, then filter."""
    if workload.op == "matmul":
        return f"{workload.n}x{workload.c} . {workload.c}x{workload.k}"
    text = f"{workload.n}x{workload.h}x{workload.w}x{workload.c} {workload.r}x{workload.s}"
    text += f" -> {workload.k}"
    if workload.stride != (1, 1):
        text += f" /{workload.stride[0]}"
    if workload.groups != 1:
        text += f" g{workload.groups}"
    return text


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _row(choice: Choice, count: int, objective: str) -> list[str]:
    figure = choice.chosen.measurement
    margin = choice.margin(objective)
    return [
        choice.workload.op,
        shape_text(choice.workload),
        choice.workload.epilogue.name or "-",
        choice.chosen.candidate.backend,
        choice.chosen.candidate.kernel,
        _number(figure.kernel_us),
        _number(figure.e2e_us),
        choice.runner_up.candidate.key if choice.runner_up else "-",
        f"{margin:.2f}x" if margin else "-",
        str(count),
        "; ".join(f"{d.backend}: {d.reason}" for d in choice.declines) or "-",
    ]


def rows(plan: Plan) -> list[list[str]]:
    """One row for each distinct workload, in network order, with how often it occurs."""
    counts: dict[str, int] = {}
    first: dict[str, Choice] = {}
    for choice in plan.choices:
        counts[choice.workload.key] = counts.get(choice.workload.key, 0) + 1
        first.setdefault(choice.workload.key, choice)
    return [_row(choice, counts[key], plan.objective) for key, choice in first.items()]


def summary(plan: Plan) -> str:
    """One line: objective, where figures come from, totals, share of each backend."""
    shares = ", ".join(f"{name} {count}" for name, count in plan.backends().items())
    text = f"objective {plan.objective} ({plan.source} figures, {plan.device.name}); {shares}"
    if plan.total_us("graph"):
        text += (
            f"; kernels {plan.total_us('graph'):.0f} us, asynchronous"
            f" {plan.total_us('stream'):.0f} us, synchronised {plan.total_us('sync'):.0f} us"
        )
    return text

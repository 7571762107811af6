"""A plan as rows of a table: what runs where, at which cost, and what else was possible."""

from __future__ import annotations

from ..ir.plan import Choice, Plan
from ..ir.workload import Workload
from .explanation import Explanation, OpExplanation, Rival

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
    measurement = choice.chosen.measurement
    margin = choice.margin(objective)
    return [
        choice.workload.op,
        shape_text(choice.workload),
        choice.workload.epilogue.name or "-",
        choice.chosen.candidate.backend,
        choice.chosen.candidate.kernel,
        _number(measurement.kernel_us),
        _number(measurement.e2e_us),
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
    """One line: objective, where measurements come from, totals, share of each backend."""
    shares = ", ".join(f"{name} {count}" for name, count in plan.backends().items())
    source = "no" if plan.source == "none" else plan.source
    text = f"objective {plan.objective} ({source} measurements, {plan.device.name}); {shares}"
    if plan.total_us("graph"):
        text += (
            f"; kernels {plan.total_us('graph'):.0f} us, asynchronous"
            f" {plan.total_us('stream'):.0f} us, synchronised {plan.total_us('sync'):.0f} us"
        )
    return text


DETAIL_COLUMNS = (
    "op",
    "shape",
    "epilogue",
    "candidate",
    "kernel-only us",
    "enqueue us",
    "end-to-end us",
    "cost us",
    "margin",
    "count",
    "why",
)


def details(explanation: Explanation, losers: int = 3) -> list[list[str]]:
    """Rows that show each distinct decision: the winner, its closest rivals (all with 0), what
    could not run, and what would change."""
    counts: dict[str, int] = {}
    for op in explanation.ops:
        counts[op.workload.key] = counts.get(op.workload.key, 0) + 1
    rows: list[list[str]] = []
    for op in {op.workload.key: op for op in reversed(explanation.ops)}.values():
        rows[:0] = _detail(op, counts[op.workload.key], losers)
    return rows


def _detail(op: OpExplanation, count: int, losers: int) -> list[list[str]]:
    head = [op.workload.op, shape_text(op.workload), op.workload.epilogue.name or "-"]
    blank = ["", "", ""]
    why = "chosen" if op.branches == 1 else f"chosen, {op.branches} branches side by side"
    rows = [[*head, *_times(op.winner), str(count), why]]
    for rival in op.losers[:losers] if losers else op.losers:
        rows.append([*blank, *_times(rival), "", "tie" if rival.tie else ""])
    for fusion in op.fusions:
        if not fusion.chosen and fusion.cost_us is not None:
            left = f" and {fusion.left_us:.2f} us left to TVM" if fusion.left_us else ""
            text = f"fusing {fusion.epilogue or 'nothing'}: {fusion.cost_us:.2f} us{left}"
            rows.append([*blank, fusion.candidate, "", "", "", "", "", "", text])
    for decline in op.declines:
        remedy = f" ({decline.remedy})" if decline.remedy else ""
        text = f"declined: {decline.reason}{remedy}"
        rows.append([*blank, decline.backend, "", "", "", "", "", "", text])
    for name, why in op.failed[:losers] if losers else op.failed:
        rows.append([*blank, name, "", "", "", "", "", "", f"failed: {why}"])
    for objective, other in op.elsewhere:
        rows.append([*blank, other, "", "", "", "", "", "", f"under {objective}"])
    return rows


def _times(rival: Rival) -> list[str]:
    sides = [_number(v) for v in (rival.kernel_us, rival.enqueue_us, rival.e2e_us, rival.cost_us)]
    margin = f"{rival.margin:.2f}x" if rival.margin else "-"
    return [f"{rival.backend}:{rival.kernel}", *sides, margin]


def consequences(explanation: Explanation) -> list[str]:
    """What the objective counted, and for each other one what would change, as sentences."""
    lines = [f"objective {explanation.objective} counts {explanation.counted}"]
    for other in explanation.otherwise:
        lines.append(
            f"under {other.objective}: {other.changed} of {len(explanation.ops)} operations would "
            f"run on another kernel; this plan takes {other.this_us:.0f} us there, its own "
            f"{other.own_us:.0f} us ({100 * other.loss:+.1f}%)"
        )
    return lines

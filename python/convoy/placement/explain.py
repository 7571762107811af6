"""A plan for people: a table of its operations that fits 80 columns, and the reasons behind it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from ..ir import objective as objectives
from ..ir.kernel_words import kernel_words
from ..ir.plan import Choice, Plan
from ..ir.workload import Workload
from .cover import Cover
from .explanation import Explanation, OpExplanation, Rival

COLUMNS = ("operation", "share", "us", "backend", "kernel")
#: Operations that a table shows unless all are asked for.
MOST = 20
WIDTH = 80
_OPERATION, _KERNEL = 24, 27


def shape_text(workload: Workload) -> str:
    """Forward sizes in the order people say them: input, then filter."""
    if workload.op == "matmul":
        return f"{workload.n}x{workload.c} . {workload.c}x{workload.k}"
    if workload.op == "attention":
        size = f"{workload.groups}x{workload.c // workload.groups}"
        return f"{workload.n}x{workload.h}x{workload.w}, {size} heads"
    text = f"{workload.n}x{workload.h}x{workload.w}x{workload.c} {workload.r}x{workload.s}"
    text += f" -> {workload.k}"
    if workload.stride != (1, 1):
        text += f" /{workload.stride[0]}"
    if workload.groups != 1:
        text += f" g{workload.groups}"
    return text


@dataclass(frozen=True)
class Table:
    """Rows of :data:`COLUMNS`, and a line about what they leave out (empty: nothing)."""

    rows: list[list[str]]
    rest: str = ""


def table(plan: Plan, cover: Cover | None = None, most: int | None = MOST) -> Table:
    """One row for each operation in network order, with its share of the predicted time.

    A plan of more than ``most`` operations shows the heaviest, heaviest first; None shows all. With
    a ``cover``, which knows TVM's kernels, a last row sums up the estimates of those.
    """
    costs = [_cost(choice, plan.objective) for choice in plan.choices]
    native = _native_us(cover, plan) if cover is not None else 0.0
    total = sum(filter(None, costs)) + native
    order = list(range(len(costs)))
    if most is not None and len(order) > most:
        heaviest = sorted(order, key=lambda i: -(costs[i] or 0.0))
        order, hidden = heaviest[:most], heaviest[most:]
        share = f", {100 * sum(costs[i] or 0.0 for i in hidden) / total:.1f}% of the time"
        rest = f"and {len(hidden)} more operations{share if total else ''}: --all shows them"
    else:
        rest = ""
    rows = [_row(plan.choices[i], costs[i], total) for i in order]
    if native:
        rows.append(["other operations", f"{100 * native / total:.1f}%", f"{native:.2f}", "tvm",
                     "estimated"])  # fmt: skip
    return Table(rows, rest)


def rows(plan: Plan) -> list[list[str]]:
    """One row for each operation, in network order."""
    return table(plan, most=None).rows


def _cost(choice: Choice, objective: str) -> float | None:
    measurement = choice.chosen.measurement
    return objectives.own_cost(measurement, objective)[0] if measurement.ok else None


def _native_us(cover: Cover, plan: Plan) -> float:
    """Microseconds of TVM's kernels: those of a cover that no choice stands for."""
    return sum(
        objectives.own_cost(offer.measurement, plan.objective)[0]
        for subgraph, offer in cover.launches
        if subgraph.workload is None and offer.measurement.ok
    )


def _row(choice: Choice, cost: float | None, total: float) -> list[str]:
    candidate = choice.chosen.candidate
    return [
        ending(choice.label, _OPERATION),
        f"{100 * cost / total:.1f}%" if cost is not None and total else "-",
        _number(cost),
        candidate.backend,
        beginning(kernel_words(candidate.backend, candidate.kernel), _KERNEL),
    ]


def ending(text: str, width: int) -> str:
    """The last characters: names of layers differ at their ends."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def beginning(text: str, width: int) -> str:
    """The first characters of a text."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def summary(plan: Plan) -> str:
    """Objective, where measurements come from, share of each backend, totals, and what has no
    timing and is in none of them."""
    shares = ", ".join(f"{name} {count}" for name, count in plan.backends().items())
    source = "no" if plan.source == "none" else plan.source
    lines = [f"objective {plan.objective} ({source} measurements, {plan.device.name}); {shares}"]
    if plan.total_us("graph"):
        lines.append(
            f"kernels {plan.total_us('graph'):.0f} us, asynchronous {plan.total_us('stream'):.0f}"
            f" us, synchronised {plan.total_us('sync'):.0f} us"
        )
    if without := [c.label for c in plan.choices if not c.chosen.measurement.ok]:
        names = ", ".join(without[:4]) + (", ..." if len(without) > 4 else "")
        lines.append(f"without a timing: {len(without)} of {len(plan.choices)} ({names})")
    return "\n".join(lines)


def details(explanation: Explanation, losers: int = 3) -> list[str]:
    """Lines that explain each distinct decision: the winner, its closest rivals (all with 0), what
    could not run, and what would change under other objectives."""
    alike: dict[str, list[OpExplanation]] = {}
    for op in explanation.ops:
        alike.setdefault(op.workload.key, []).append(op)
    return [line for ops in alike.values() for line in _detail(ops, losers)]


def _detail(ops: Sequence[OpExplanation], losers: int) -> list[str]:
    op = ops[0]
    name = op.layer + (f" and {len(ops) - 1} more" if len(ops) > 1 else "")
    epilogue = f", then {op.workload.epilogue.name}" if op.workload.epilogue.name else ""
    lines = [f"{name}: {op.workload.op} {shape_text(op.workload)}{epilogue}"]
    together = f", {op.branches} branches side by side" if op.branches > 1 else ""
    lines += _folded(f"chosen {_times(op.winner)}{together}")
    for rival in op.losers[:losers] if losers else op.losers:
        lines += _folded(f"{'tie' if rival.tie else 'lost':<6} {_times(rival)}")
    for fusion in op.fusions:
        if not fusion.chosen and fusion.cost_us is not None:
            left = f" and {fusion.left_us:.2f} us left to TVM" if fusion.left_us else ""
            what = f"fusing {fusion.epilogue or 'nothing'} {fusion.cost_us:.2f} us{left}"
            lines += _folded(f"{what}: {fusion.candidate}")
    for decline in op.declines:
        remedy = f" ({decline.remedy})" if decline.remedy else ""
        lines += _folded(f"{decline.backend} declined: {decline.reason}{remedy}")
    for candidate, why in op.failed[:losers] if losers else op.failed:
        lines += _folded(f"{candidate} failed: {why}")
    for objective, other in op.elsewhere:
        lines += _folded(f"under {objective}: {other}")
    return lines


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _times(rival: Rival) -> str:
    margin = f" {rival.margin:.2f}x" if rival.margin else ""
    sides = f"kernel {_number(rival.kernel_us)}, end to end {_number(rival.e2e_us)} us"
    return f"{rival.backend}:{rival.kernel}{margin}, {sides}"


def consequences(explanation: Explanation) -> list[str]:
    """What the objective counted, and for each other one what would change, as sentences."""
    lines = [f"objective {explanation.objective} counts {explanation.counted}"]
    for other in explanation.otherwise:
        lines.append(
            f"under {other.objective}: {other.changed} of {len(explanation.ops)} operations would "
            f"run on another kernel; this plan takes {other.this_us:.0f} us there, its own "
            f"{other.own_us:.0f} us ({100 * other.loss:+.1f}%)"
        )
    return [line for text in lines for line in textwrap.wrap(text, WIDTH)]

"""Format a plan: a table of its operations in 80 columns, and the reasons for each selection."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ..cost.native import native_measurement
from ..ir import objective as objectives
from ..ir.kernel_words import NATIVE, kernel_words, readable
from ..ir.measurement import Measurement
from ..ir.plan import Choice, Plan
from ..ir.schedule import Schedule
from ..ir.schedule_parts import Op
from ..ir.workload import Workload
from .explanation import Explanation, OpExplanation, Rival
from .placement import Native

COLUMNS = ("operation", "share", "us", "backend", "kernel")
#: Operations that a table shows unless all are asked for.
MOST = 20
WIDTH = 80
_OPERATION, _KERNEL = 24, 27


def shape_text(workload: Workload) -> str:
    """Forward sizes in conventional order: input, then filter."""
    if workload.op == "matmul":
        return f"{workload.n}x{workload.c} . {workload.c}x{workload.k}"
    if workload.op == "attention":
        size = f"{workload.groups}x{workload.c // workload.groups}"
        return f"{workload.n}x{workload.h}x{workload.w}, {size} heads"
    d, t = (f"{workload.depth.d}x", f"{workload.depth.t}x") if workload.is_3d else ("", "")
    text = f"{workload.n}x{d}{workload.h}x{workload.w}x{workload.c} {t}{workload.r}x{workload.s}"
    text += f" -> {workload.k}"
    if workload.stride != (1, 1):
        text += f" /{workload.stride[0]}"
    if workload.groups != 1:
        text += f" g{workload.groups}"
    return text


@dataclass(frozen=True)
class Table:
    """Rows of :data:`COLUMNS`, and a line about omitted rows (empty if there are none)."""

    rows: list[list[str]]
    rest: str = ""


def table(plan: Plan, schedule: Schedule | None = None, most: int | None = MOST) -> Table:
    """Tabulate all kernels in launch order, with their share of the total.

    A network of more than ``most`` kernels shows the heaviest, heaviest first; None shows all.
    Without a ``schedule``, which knows TVM's kernels, the operations of the plan alone.
    """
    lines = _lines(plan, schedule)
    total = sum(line.us or 0.0 for line in lines)
    order, rest = list(lines), ""
    if most is not None and len(order) > most:
        heaviest = sorted(order, key=lambda line: -(line.us or 0.0))
        order, hidden = heaviest[:most], heaviest[most:]
        share = f", {100 * sum(x.us or 0.0 for x in hidden) / (total or 1.0):.1f}% of the time"
        rest = f"and {len(hidden)} more operations{share if total else ''}: --all shows them"
    return Table([_row(line, total) for line in order], rest)


def rows(plan: Plan, schedule: Schedule | None = None) -> list[list[str]]:
    """Return a row for each kernel, in launch order."""
    return table(plan, schedule, most=None).rows


def predicted_us(plan: Plan, schedule: Schedule, objective: str) -> float:
    """Time of a network under an objective, TVM's kernels included: for ``graph`` the time of the
    schedule, for the others that of its kernels launched one after another."""
    if objective == "graph":
        return schedule.makespan_us
    choices = plan.functions()
    return objectives.total(
        [_measured(op, choices.get(op.symbol)) for op in schedule.ops], objective
    )


@dataclass(frozen=True)
class _Line:
    """A kernel and its cost under the plan's objective; None if unknown."""

    label: str
    us: float | None
    backend: str
    kernel: str


def _lines(plan: Plan, schedule: Schedule | None) -> list[_Line]:
    choices = plan.functions()
    if schedule is None:
        return [_line(c.chosen.measurement, c, "", plan, c.linked) for c in choices.values()]
    found = [(op, choices.get(op.symbol)) for op in schedule.ops]
    return [_line(_measured(op, c), c, op.symbol, plan, op.linked) for op, c in found]


def _measured(op: Op, choice: Choice | None) -> Measurement:
    """Return the measurement of a kernel with the schedule's duration and the plan's host times."""
    if op.source == "unknown":
        return Measurement()
    if choice is None:
        return native_measurement(op.duration_us)
    found = choice.chosen.measurement
    us, chained_us = op.duration_us, op.chained_us
    return dataclasses.replace(found, kernel_us=us, cold_us=None, chained_us=chained_us)


def _line(
    measurement: Measurement, choice: Choice | None, symbol: str, plan: Plan, linked: bool
) -> _Line:
    cost, _ = objectives.own_cost(measurement, plan.objective, linked)
    us = cost if measurement.ok else None
    if choice is None:
        return _Line(readable(symbol), us, NATIVE, "")
    candidate = choice.chosen.candidate
    words = kernel_words(candidate.backend, candidate.kernel)
    return _Line(choice.label, us, candidate.backend, words)


def _row(line: _Line, total: float) -> list[str]:
    return [
        ending(line.label, _OPERATION),
        f"{100 * line.us / total:.1f}%" if line.us is not None and total else "-",
        _number(line.us),
        line.backend,
        beginning(line.kernel, _KERNEL) or "-",
    ]


def ending(text: str, width: int) -> str:
    """The last characters: names of layers differ at their ends."""
    if cell_len(text) <= width:
        return text
    kept = text[1 - width :]
    while cell_len(kept) >= width:  # some characters are as wide as two
        kept = kept[1:]
    return "…" + kept


def beginning(text: str, width: int) -> str:
    """The first characters of a text."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def summary(plan: Plan, schedule: Schedule | None = None) -> str:
    """Objective, where measurements come from, share of each backend, the predicted time of the
    whole network (without a ``schedule`` of the plan's operations), and what has no timing."""
    shares = ", ".join(f"{name} {count}" for name, count in plan.backends().items())
    source = "no" if plan.source == "none" else plan.source
    lines = [f"objective {plan.objective} ({source} measurements, {plan.device.name})"]
    lines[0] += f"; {shares}" if shares else ""
    if schedule is not None:
        lines.append(f"predicted {schedule.total}")
        others = (predicted_us(plan, schedule, name) for name in ("stream", "sync"))
    else:
        lines.append(f"kernels {plan.total_us('graph'):.0f} us")
        others = (plan.total_us(name) for name in ("stream", "sync"))
    lines.append("asynchronous {:.0f} us, synchronized {:.0f} us".format(*others))
    if without := [c.label for c in plan.choices if not c.chosen.measurement.ok]:
        names = ", ".join(ending(label, _OPERATION) for label in without[:4])
        names += ", ..." if len(without) > 4 else ""
        lines.append(f"without a timing: {len(without)} of {len(plan.choices)} ({names})")
    return "\n".join(map(_filled, lines))


def details(explanation: Explanation, losers: int = 3) -> list[str]:
    """Lines that explain each distinct decision: the selected candidate, its closest rivals (all
    with 0), declines and failures, and changes under other objectives."""
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


def left(natives: Sequence[Native]) -> list[str]:
    """Lines on the operations that are left to TVM's own kernels, with the reasons."""
    lines = []
    for native in natives:
        label = f"{ending(native.layer, _OPERATION)}: " if native.layer else ""
        what = f"{label}{native.workload.op} {shape_text(native.workload)}"
        lines.append(_filled(f"left to TVM's own kernels: {what} ({native.reasons})"))
    return list(dict.fromkeys(lines))


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _times(rival: Rival) -> str:
    margin = f" {rival.margin:.2f}x" if rival.margin else ""
    sides = f"kernel {_number(rival.kernel_us)}, end to end {_number(rival.e2e_us)} us"
    return f"{rival.backend}:{rival.kernel}{margin}, {sides}"


def consequences(explanation: Explanation) -> list[str]:
    """Describe the plan's objective, and the changes under each other one."""
    lines = [f"objective {explanation.objective} counts {explanation.counted}"]
    for other in explanation.otherwise:
        lines.append(
            f"under {other.objective}: {other.changed} of {len(explanation.ops)} operations would "
            f"run on another kernel; this plan takes {other.this_us:.0f} us there, its own "
            f"{other.own_us:.0f} us ({100 * other.loss:+.1f}%)"
        )
    return [line for text in lines for line in textwrap.wrap(text, WIDTH)]

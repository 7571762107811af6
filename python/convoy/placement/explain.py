"""Format a plan: a table of its operations in 80 columns, and a summary."""

from __future__ import annotations

import dataclasses
import textwrap
from dataclasses import dataclass

from rich.cells import cell_len

from ..cost.native import of_duration
from ..ir import objective as objectives
from ..ir.kernel_words import NATIVE, kernel_words, readable
from ..ir.measurement import Measurement
from ..ir.plan import Choice, Plan
from ..ir.schedule import Schedule
from ..ir.schedule_parts import Op
from ..ir.workload import Workload

COLUMNS = ("operation", "share", "us", "backend", "kernel")
#: Operations that a table shows unless all are asked for.
MOST = 20
WIDTH = 80
#: Characters of a name and of a kernel in a table.
OPERATION, _KERNEL = 24, 27


def shape_text(workload: Workload) -> str:
    """Forward sizes in conventional order: input, then filter."""
    if workload.op == "matmul":
        return f"{workload.n}x{workload.c} . {workload.c}x{workload.k}"
    if workload.op == "attention":
        size = f"{workload.groups}x{workload.c // workload.groups}"
        return f"{workload.n}x{workload.h}x{workload.w}, {size} heads"
    if workload.expansion is not None:
        channels, k = workload.expansion.channels, workload.k
        stride = f" /{workload.stride[0]}" if workload.stride != (1, 1) else ""
        size = f"{workload.n}x{workload.h}x{workload.w}x{channels}"
        return f"{size} 1x1 -> {k}, {workload.r}x{workload.s} depthwise{stride}"
    if workload.squeeze_excite is not None:
        size = f"{workload.n}x{workload.h}x{workload.w}x{workload.c}"
        return f"{size} mean -> {workload.squeeze_excite.channels} -> gates"
    d, t = (f"{workload.depth.d}x", f"{workload.depth.t}x") if workload.is_3d else ("", "")
    text = f"{workload.n}x{d}{workload.h}x{workload.w}x{workload.c} {t}{workload.r}x{workload.s}"
    text += f" -> {workload.k}"
    if workload.stride != (1, 1):
        text += f" /{workload.stride[0]}"
    if workload.groups != 1:
        text += f" g{workload.groups}"
    if workload.bottleneck is not None:
        widths = filter(None, (workload.bottleneck.expand, workload.bottleneck.reduce))
        text += "".join(f", 1x1 -> {width}" for width in widths)
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
    lines = [_line(_measured(op, c), c, op.symbol, plan, op.linked) for op, c in found]
    start_us = min((op.start_us for op in schedule.ops), default=0.0)
    if plan.objective == "graph" and start_us:
        lines.insert(0, _Line("start of the graph", start_us, "cuda", ""))
    return lines


def _measured(op: Op, choice: Choice | None) -> Measurement:
    """Return the measurement of a kernel with the schedule's duration and the plan's host times."""
    if op.source == "unknown":
        return Measurement()
    if choice is None:
        return of_duration(op.duration_us)
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
    share = line.us / total if line.us is not None and total else None
    return row(line.label, share, line.us, line.backend, line.kernel)


def row(
    operation: str, share: float | None, us: float | None, backend: str, kernel: str
) -> list[str]:
    """Format a row of :data:`COLUMNS`; ``share`` of the total is from 0 to 1."""
    return [
        ending(operation, OPERATION),
        f"{100 * share:.1f}%" if share is not None else "-",
        number(us),
        backend,
        (kernel if len(kernel) <= _KERNEL else kernel[: _KERNEL - 1] + "…") or "-",
    ]


def ending(text: str, width: int) -> str:
    """The last characters: names of layers differ at their ends."""
    if cell_len(text) <= width:
        return text
    kept = text[1 - width :]
    while cell_len(kept) >= width:  # some characters are as wide as two
        kept = kept[1:]
    return "…" + kept


def number(value: float | None) -> str:
    """Two decimals; a dash for what is unknown."""
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
    if without := [choice.label for choice in plan.untimed()]:
        names = ", ".join(ending(label, OPERATION) for label in without[:4])
        names += ", ..." if len(without) > 4 else ""
        lines.append(f"without a timing: {len(without)} of {len(plan.choices)} ({names})")
    return "\n".join(map(filled, lines))


def filled(text: str) -> str:
    """Fold a line at the width of tables."""
    return textwrap.fill(text, WIDTH, subsequent_indent="  ")

"""Format the reasons of a placement as lines of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .explain import OPERATION, WIDTH, ending, filled, number, shape_text
from .explanation import Explanation, OpExplanation, Rival
from .placement import Native

#: Rivals, and failed candidates, that are shown for a decision.
MOST = 3


def details(explanation: Explanation) -> list[str]:
    """Lines that explain each distinct decision: the selected candidate, its closest rivals,
    declines and failures, and changes under other objectives."""
    alike: dict[str, list[OpExplanation]] = {}
    for op in explanation.ops:
        alike.setdefault(op.workload.key, []).append(op)
    return [line for ops in alike.values() for line in _detail(ops)]


def _detail(ops: Sequence[OpExplanation]) -> list[str]:
    op = ops[0]
    name = op.layer + (f" and {len(ops) - 1} more" if len(ops) > 1 else "")
    epilogue = f", then {op.workload.epilogue.name}" if op.workload.epilogue.name else ""
    lines = [f"{name}: {op.workload.op} {shape_text(op.workload)}{epilogue}"]
    together = f", {op.branches} branches side by side" if op.branches > 1 else ""
    lines += _folded(f"chosen {_times(op.winner)}{together}")
    for rival in op.losers[:MOST]:
        lines += _folded(f"{'tie' if rival.tie else 'lost':<6} {_times(rival)}")
    for fusion in op.fusions:
        if not fusion.chosen and fusion.cost_us is not None:
            left = f" and {fusion.left_us:.2f} us left to TVM" if fusion.left_us else ""
            what = f"fusing {fusion.epilogue or 'nothing'} {fusion.cost_us:.2f} us{left}"
            lines += _folded(f"{what}: {fusion.candidate}")
    for decline in op.declines:
        remedy = f" ({decline.remedy})" if decline.remedy else ""
        lines += _folded(f"{decline.backend} declined: {decline.reason}{remedy}")
    for candidate, why in op.failed[:MOST]:
        lines += _folded(f"{candidate} failed: {why}")
    for objective, other in op.elsewhere:
        lines += _folded(f"under {objective}: {other}")
    return lines


def left_to_tvm(natives: Sequence[Native]) -> list[str]:
    """Lines on the operations that are left to TVM's own kernels, with the reasons."""
    lines = []
    for native in natives:
        label = f"{ending(native.layer, OPERATION)}: " if native.layer else ""
        what = f"{label}{native.workload.op} {shape_text(native.workload)}"
        lines.append(filled(f"left to TVM's own kernels: {what} ({native.reasons})"))
    return list(dict.fromkeys(lines))


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="      ")


def _times(rival: Rival) -> str:
    margin = f" {rival.margin:.2f}x" if rival.margin else ""
    sides = f"kernel {number(rival.kernel_us)}, end to end {number(rival.e2e_us)} us"
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

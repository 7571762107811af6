"""Schedule rules for GPUs, from the fastest to the simplest.

A rule may decline a function, which is the normal case, or fail on it; either way the next one is
tried. A scheduled function keeps its unscheduled source, so that it can fall back to a later rule
when code generation fails on it.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight.base import ScheduleRule
from tvm_ffi import StructuralKey

from ..errors import UnsupportedOp
from ..progress import step
from .arg_reduce import ArgReduce
from .batch_matmul import BatchMatmul
from .channel_gate import ChannelGate
from .channel_reduce import ChannelReduce
from .column_reduce import ColumnReduce
from .elementwise import Elementwise
from .fallback import (
    Fallback,
    ThreadPerElement,
    nothing,
    one_thread,
    without_elements,
    works_on_the_host,
)
from .fused_rows import FusedRows
from .gemv import Gemv
from .row_reduce import RowReduce
from .row_strides import ROW_STRIDES, like
from .window import Window

#: TVM's Matmul rule is not among them: it crashes on some convolutions.
RULES: tuple[ScheduleRule, ...] = (
    Elementwise(),
    ChannelReduce(),
    BatchMatmul(),
    ChannelGate(),
    Gemv(),
    RowReduce(),
    Window(),
    ColumnReduce(),
    ArgReduce(),
    FusedRows(),
    dlight.gpu.GeneralReduction(),
    Fallback(),
    ThreadPerElement(),
)
ONE_THREAD = "OneThread"

_SCHEDULED = "tirx.is_scheduled"
_SOURCE, _RULE, _FAILED = "convoy.unscheduled", "convoy.rule", "convoy.failed"

_log = logging.getLogger("convoy")
#: Longest reason that is kept, in characters.
_LONGEST = 300


@dataclass(frozen=True)
class Rescheduled:
    """A kernel that fell back to a later schedule rule.

    ``rule`` is its schedule now, empty if none is left; ``failed`` are the rules that failed
    before, each with its reason.
    """

    kernel: str
    rule: str
    failed: tuple[tuple[str, str], ...]

    @property
    def tried(self) -> str:
        """The rules that failed, by reason."""
        rules: dict[str, list[str]] = {}
        for rule, reason in self.failed:
            rules.setdefault(reason, []).append(rule)
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in rules.items())

    def __str__(self) -> str:
        return f"{self.kernel} by {self.rule}, since these failed: {self.tried}"


def schedule_kernels(target: tvm.target.Target) -> Callable[[tvm.IRModule], tvm.IRModule]:
    """Make a pass that binds every kernel of a module to threads.

    The pass raises UnsupportedOp for a kernel that no rule accepts.
    """

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        functions = dict(mod.functions_items())
        with target:
            for number, (var, func) in enumerate(functions.items()):
                step(var.name_hint, number, len(functions))
                if isinstance(func, tirx.PrimFunc):
                    functions[var] = _scheduled(func, target, var.name_hint)
        return tvm.IRModule(functions, attrs=mod.attrs)

    return run


def simpler(
    func: tirx.PrimFunc, target: tvm.target.Target, name: str, reason: str
) -> tirx.PrimFunc:
    """Schedule ``func`` by the next rule; for a CPU, return it as it was before it was scheduled.

    Args:
        reason: Why its current schedule fails.

    Raises:
        UnsupportedOp: No rule is left, or the function did not get its schedule here. The error
            lists all rules tried.
    """
    source, number = _attribute(func, _SOURCE), _attribute(func, _RULE)
    if source is None:
        raise unsupported(Rescheduled(name, "", (("the schedule it came with", reason),)), func)
    if number is None:
        _log.warning("%s is compiled without tiles, since they failed: %s", name, reason)
        found = source
    else:
        failed = (*_failures(func), (_name(int(number)), reason))
        with target:
            found = like(_first_working(source, target, name, int(number) + 1, failed), func)
    symbol = _attribute(func, "global_symbol")
    return found if symbol is None else found.with_attr("global_symbol", symbol)


def with_source(func: tirx.PrimFunc, source: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with what it was before it was scheduled for a CPU, for :func:`simpler`."""
    return func.with_attr(_SOURCE, source)


def rescheduled(mod: tvm.IRModule) -> list[Rescheduled]:
    """List the functions of a module on which some rule failed, by name."""
    found = []
    for var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc) and (failed := _failures(func)):
            found.append(Rescheduled(var.name_hint, _name(int(_attribute(func, _RULE))), failed))
    return sorted(found, key=lambda r: r.kernel)


def without_source(mod: tvm.IRModule) -> tvm.IRModule:
    """Remove the attributes that rescheduling needs, for code generation."""
    functions = {}
    for var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            for key in (_SOURCE, _RULE, _FAILED, ROW_STRIDES):
                if _attribute(func, key) is not None:
                    func = func.without_attr(key)
        functions[var] = func
    return tvm.IRModule(functions, attrs=mod.attrs)


def unsupported(tried: Rescheduled, func: tirx.PrimFunc) -> UnsupportedOp:
    """Make the error for a function that no schedule makes compile."""
    shapes = ", ".join(
        f"{param.dtype}{tuple(map(_size, param.shape))}"
        for param in func.params
        if hasattr(param.ty, "shape")
    )
    return UnsupportedOp(
        f"kernel {tried.kernel} of {shapes}, which TVM does not compile ({tried.tried})",
        "operators that TVM schedules and compiles",
        "Express the operators in the kernel's name with others, or compute them outside of the "
        "network.",
    )


def _size(extent: object) -> int | str:
    return int(extent) if isinstance(extent, tirx.IntImm) else str(extent)


def why(err: BaseException) -> str:
    """Shorten an error of TVM to one line."""
    lines = [line.strip() for line in str(err).splitlines()]
    lines = [line for line in lines if line.strip("^ -=#")]
    for mark in (r"Error message:", r"\berror\s*:"):
        lines = [line for line in lines if re.search(mark, line)][:1] or lines
    text = lines[0] if lines else type(err).__name__
    text = re.sub(r"^\S+\(\d+\): ", "", text)  # a place in generated code
    text = re.sub(r'ir\.Op\(.*?name="([^"]+)".*?\)', r"\1", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _scheduled(func: tirx.PrimFunc, target: tvm.target.Target, name: str) -> tirx.PrimFunc:
    if _attribute(func, _SCHEDULED):
        return func
    if without_elements(func):  # a launch of no threads is an error
        return nothing(func).with_attr(_SCHEDULED, True)
    if not works_on_the_host(func.body):
        return func.with_attr(_SCHEDULED, True)
    return _by_rules(StructuralKey(func), StructuralKey(target), RULES)


@functools.lru_cache(maxsize=1024)
def _by_rules(
    func: StructuralKey, target: StructuralKey, rules: tuple[ScheduleRule, ...]
) -> tirx.PrimFunc:
    """Schedule a function once in a process, however often networks with it are compiled: on one
    stream where several do not pay, with other kernels, with new weights."""
    return _first_working(func.key, target.key, "", 0, ())


def _first_working(
    source: tirx.PrimFunc,
    target: tvm.target.Target,
    name: str,
    first: int,
    failed: tuple[tuple[str, str], ...],
) -> tirx.PrimFunc:
    """Schedule ``source`` by the first rule from number ``first`` on that accepts it."""
    for number, rule in enumerate(RULES[first:], first):
        try:
            found = rule.apply(source, target, False)
        except Exception as err:  # any error; the next rule may work
            failed = (*failed, (_name(number), why(err)))
            continue
        if found is None:
            continue
        func = found.mod["main"]
        if works_on_the_host(func.body):
            failed = (*failed, (_name(number), "statements are left outside of any thread"))
        else:
            return _marked(func, source, number, failed)
    if first > len(RULES):
        raise unsupported(Rescheduled(name, "", failed), source)
    return _marked(one_thread(source), source, len(RULES), failed)


def _marked(
    func: tirx.PrimFunc,
    source: tirx.PrimFunc,
    number: int,
    failed: tuple[tuple[str, str], ...],
) -> tirx.PrimFunc:
    marks = {_SCHEDULED: True, _SOURCE: source, _RULE: number}
    if failed:
        marks[_FAILED] = [list(pair) for pair in failed]
    return func.with_attr(marks)


def _name(number: int) -> str:
    return type(RULES[number]).__name__ if number < len(RULES) else ONE_THREAD


def _attribute(func: tirx.PrimFunc, key: str) -> Any:
    return func.attrs[key] if func.attrs and key in func.attrs else None


def _failures(func: tirx.PrimFunc) -> tuple[tuple[str, str], ...]:
    return tuple((str(rule), str(reason)) for rule, reason in _attribute(func, _FAILED) or ())

"""Schedule rules from fast to simple, and what becomes of a function that one of them fails on.

A rule may decline a function, which is the normal case, or fail on it; either way the next one is
asked. A scheduled function keeps the one that it was made of, so that it can be scheduled again
more simply when code generation fails on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import dlight
from tvm.s_tir.dlight.base import ScheduleRule

from ..errors import UnsupportedOp
from .channel_reduce import ChannelReduce
from .elementwise import Elementwise
from .fallback import (
    Fallback,
    ThreadPerElement,
    nothing,
    one_thread,
    without_elements,
    works_on_the_host,
)
from .row_reduce import RowReduce
from .window import Window

#: TVM's Matmul rule is not among them: it crashes on some convolutions.
RULES: tuple[ScheduleRule, ...] = (
    Elementwise(),
    ChannelReduce(),
    RowReduce(),
    Window(),
    dlight.gpu.GeneralReduction(),
    Fallback(),
    ThreadPerElement(),
)
ONE_THREAD = "OneThread"

_SCHEDULED = "tirx.is_scheduled"
_SOURCE, _RUNG, _FAILED = "convoy.unscheduled", "convoy.rung", "convoy.failed"

#: Longest reason that is kept, in characters.
_LONGEST = 300


@dataclass(frozen=True)
class Rescheduled:
    """A kernel on which the first choice of a schedule failed.

    ``rule`` is the schedule that it has now, ``failed`` those that failed before, each with the
    reason. ``rule`` is empty where none was left.
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
    """A function that binds every kernel of a module to threads.

    It raises UnsupportedOp for a kernel that no rule takes.
    """

    def run(mod: tvm.IRModule) -> tvm.IRModule:
        functions = dict(mod.functions_items())
        with target:
            for var, func in functions.items():
                if isinstance(func, tirx.PrimFunc):
                    functions[var] = _scheduled(func, target, var.name_hint)
        return tvm.IRModule(functions, attrs=mod.attrs)

    return run


def simpler(
    func: tirx.PrimFunc, target: tvm.target.Target, name: str, reason: str
) -> tirx.PrimFunc:
    """``func`` by the next rule; ``reason`` is why what it has now does not do.

    Raises UnsupportedOp, with all that was tried, where no rule is left or the function did not
    get its schedule here.
    """
    source, rung = _attribute(func, _SOURCE), _attribute(func, _RUNG)
    if source is None:
        raise unsupported(Rescheduled(name, "", (("the schedule it came with", reason),)), func)
    failed = (*_failures(func), (_name(int(rung)), reason))
    with target:
        found = _climb(source, target, name, int(rung) + 1, failed)
    symbol = _attribute(func, "global_symbol")
    return found if symbol is None else found.with_attr("global_symbol", symbol)


def rescheduled(mod: tvm.IRModule) -> list[Rescheduled]:
    """The functions of a module on which some rule failed, by name."""
    found = []
    for var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc) and (failed := _failures(func)):
            found.append(Rescheduled(var.name_hint, _name(int(_attribute(func, _RUNG))), failed))
    return sorted(found, key=lambda r: r.kernel)


def without_source(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as code generation gets it."""
    functions = {}
    for var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc):
            for key in (_SOURCE, _RUNG, _FAILED):
                if _attribute(func, key) is not None:
                    func = func.without_attr(key)
        functions[var] = func
    return tvm.IRModule(functions, attrs=mod.attrs)


def unsupported(tried: Rescheduled, func: tirx.PrimFunc) -> UnsupportedOp:
    """The error for a function that nothing compiles."""
    shapes = ", ".join(
        f"{param.dtype}{tuple(map(_size, param.shape))}"
        for param in func.params
        if hasattr(param.ty, "shape")
    )
    return UnsupportedOp(
        f"kernel {tried.kernel} of {shapes}, which TVM does not compile ({tried.tried})",
        "operators that TVM schedules and compiles",
        "Say the operators in the kernel's name by others, or leave them out of the network and do "
        "them elsewhere.",
    )


def _size(extent: object) -> int | str:
    return int(extent) if isinstance(extent, tirx.IntImm) else str(extent)


def why(err: BaseException) -> str:
    """What an error of TVM says, in one line."""
    lines = [line.strip() for line in str(err).splitlines()]
    lines = [line for line in lines if line.strip("^ -=#")]
    for mark in ("Error message:", "error:"):
        lines = [line for line in lines if mark in line][:1] or lines
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
    return _climb(func, target, name, 0, ())


def _climb(
    source: tirx.PrimFunc,
    target: tvm.target.Target,
    name: str,
    rung: int,
    failed: tuple[tuple[str, str], ...],
) -> tirx.PrimFunc:
    """``source`` by the first rule from number ``rung`` on that takes it."""
    for number, rule in enumerate(RULES[rung:], rung):
        try:
            found = rule.apply(source, target, False)
        except Exception as err:  # whatever it is, the next rule may do
            failed = (*failed, (_name(number), why(err)))
            continue
        if found is None:
            continue
        func = found.mod["main"]
        if works_on_the_host(func.body):
            failed = (*failed, (_name(number), "statements are left outside of any thread"))
        else:
            return _marked(func, source, number, failed)
    if rung > len(RULES):
        raise unsupported(Rescheduled(name, "", failed), source)
    return _marked(one_thread(source), source, len(RULES), failed)


def _marked(
    func: tirx.PrimFunc,
    source: tirx.PrimFunc,
    rung: int,
    failed: tuple[tuple[str, str], ...],
) -> tirx.PrimFunc:
    marks = {_SCHEDULED: True, _SOURCE: source, _RUNG: rung}
    if failed:
        marks[_FAILED] = [list(pair) for pair in failed]
    return func.with_attr(marks)


def _name(rung: int) -> str:
    return type(RULES[rung]).__name__ if rung < len(RULES) else ONE_THREAD


def _attribute(func: tirx.PrimFunc, key: str) -> Any:
    return func.attrs[key] if func.attrs and key in func.attrs else None


def _failures(func: tirx.PrimFunc) -> tuple[tuple[str, str], ...]:
    return tuple((str(rule), str(reason)) for rule, reason in _attribute(func, _FAILED) or ())

"""Instruments: objects that a PassContext calls around each pass."""

from __future__ import annotations

import inspect
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, PassInfo


class PassInstrument:
    """Base of instruments; each method may be overridden."""

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left."""

    def should_run(self, mod: Any, info: Any) -> bool:
        """Return whether to run a pass."""
        return True

    def run_before_pass(self, mod: Any, info: Any) -> None:
        """Called before a pass, with the module it will get."""

    def run_after_pass(self, mod: Any, info: Any) -> None:
        """Called after a pass, with the module it returned."""


def pass_instrument(pi_cls: Any = None) -> Any:
    """Make a class with some of PassInstrument's methods an instrument; a decorator."""

    def create(cls: Any) -> Any:
        if not inspect.isclass(cls):
            raise TypeError("pi_cls must be a class")
        if issubclass(cls, PassInstrument):
            return cls
        made = type(cls.__name__, (cls, PassInstrument), {"__module__": cls.__module__})
        made.__doc__ = cls.__doc__
        return made

    return create if pi_cls is None else create(pi_cls)


@dataclass
class _Timed:
    """The time of one pass, and the passes that it ran."""

    name: str
    started: float
    seconds: float = 0.0
    inner: list[_Timed] = field(default_factory=list)


class PassTimingInstrument(PassInstrument):
    """Measures how long passes take; `render` returns the times until the context is left."""

    def __init__(self) -> None:
        self._root = _Timed("", 0.0)
        self._open = [self._root]

    def run_before_pass(self, mod: Any, info: Any) -> None:
        timed = _Timed(info.name, time.perf_counter())
        self._open[-1].inner.append(timed)
        self._open.append(timed)

    def run_after_pass(self, mod: Any, info: Any) -> None:
        timed = self._open.pop()
        timed.seconds = time.perf_counter() - timed.started

    def exit_pass_ctx(self) -> None:
        self.__init__()  # type: ignore[misc]

    def render(self) -> str:
        """Return a line for each pass, those that another one ran indented below it."""
        lines: list[str] = []
        todo = [(timed, 0) for timed in reversed(self._root.inner)]
        while todo:
            timed, depth = todo.pop()
            lines.append(f"{'    ' * depth}{timed.name}: {timed.seconds * 1e6:.0f}us")
            todo += [(inner, depth + 1) for inner in reversed(timed.inner)]
        return "\n".join(lines) + "\n" if lines else ""


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after passes of given names."""

    def __init__(self, print_before_pass_names: Any, print_after_pass_names: Any) -> None:
        self._before, self._after = print_before_pass_names, print_after_pass_names

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name in self._before:
            print(f"Print IR before: {info.name}\n{mod}\n\n")

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name in self._after:
            print(f"Print IR after: {info.name}\n{mod}\n\n")


def PrintIR(header: str = "", show_meta_data: bool = False) -> ModulePass:
    """Make a pass that prints the module to the standard error stream.

    Args:
        header: A line to print before it.
        show_meta_data: Print the metadata section too.
    """

    def run(mod: IRModule) -> IRModule:
        print(f"PrintIR({header}):\n{mod.astext(show_meta_data)}", file=sys.stderr)
        return mod

    return ModulePass(PassInfo(0, "PrintIR"), run)


class PrintAfterAll(PassInstrument):
    """Prints the module after each pass."""

    def run_after_pass(self, mod: Any, info: Any) -> None:
        print(f"After Running Pass: {info}\n{mod}")


class PrintBeforeAll(PassInstrument):
    """Prints the module before each pass."""

    def run_before_pass(self, mod: Any, info: Any) -> None:
        print(f"Before Running Pass: {info}\n{mod}")

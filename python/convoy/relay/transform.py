"""`relay.transform`: the passes of TVM 0.18 that mean something here.

Passes that only prepare code generation (FuseOps, AlterOpLayout, ...) have no counterpart: the
Relax pipeline does their work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule


class Pass:
    """A function from modules to modules, with a name."""

    def __init__(self, name: str, run: Callable[[IRModule], IRModule]) -> None:
        self.name, self._run = name, run

    def __call__(self, mod: IRModule) -> IRModule:
        return self._run(mod)


def InferType() -> Pass:
    """Type inference. Types are written into the module itself."""
    return Pass("InferType", infer_module)


def Sequential(passes: Sequence[Pass], **options: object) -> Pass:
    """Passes one after the other."""
    del options

    def run(mod: IRModule) -> IRModule:
        for step in passes:
            mod = step(mod)
        return mod

    return Pass("Sequential", run)

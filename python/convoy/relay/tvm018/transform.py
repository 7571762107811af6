"""`tvm.transform`: passes over Relay modules and the context they run in."""

from convoy.relay.transform.base import (
    FunctionPass,
    ModulePass,
    Pass,
    PassInfo,
    Sequential,
    module_pass,
)
from convoy.relay.transform.context import PassContext
from convoy.relay.transform.instrument import PrintIR
from convoy.relay.tvm018.modules import forward

__all__ = [
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PrintIR",
    "Sequential",
    "module_pass",
]

__getattr__ = forward("tvm.ir.transform")

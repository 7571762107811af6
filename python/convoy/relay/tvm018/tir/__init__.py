"""`tvm.tir`, which TVM now calls `tirx`."""

from tvm.ir import Call
from tvm.s_tir import SBijectiveLayout as BijectiveLayout
from tvm.s_tir import Schedule, schedule
from tvm.s_tir import sbijective_layout as bijective_layout
from tvm.s_tir import slayout as layout
from tvm.tirx import Var as SizeVar

from convoy.relay.tvm018.modules import forward
from convoy.relay.types import Any

__all__ = [
    "Any",
    "BijectiveLayout",
    "Call",
    "Schedule",
    "SizeVar",
    "bijective_layout",
    "layout",
    "schedule",
]

__getattr__ = forward("tvm.tirx", "tir")

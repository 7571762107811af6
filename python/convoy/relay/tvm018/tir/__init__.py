"""`tvm.tir`, which TVM now calls `tirx`."""

from tvm.s_tir import sbijective_layout as bijective_layout
from tvm.s_tir import slayout as layout

from convoy.relay.tvm018.modules import forward
from convoy.relay.types import Any

__all__ = ["Any", "bijective_layout", "layout"]

__getattr__ = forward("tvm.tirx")

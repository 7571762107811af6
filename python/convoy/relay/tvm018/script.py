"""`tvm.script`: TVMScript, with `tir` under its former name."""

from convoy.relay.tvm018.modules import forward
from tvm.script import tirx as tir

__all__ = ["tir"]

__getattr__ = forward("tvm.script")

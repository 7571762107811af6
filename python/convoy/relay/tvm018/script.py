"""`tvm.script`: TVMScript, with `tir` under its former name."""

from tvm.script import tirx as tir

from convoy.relay.tvm018.modules import forward

__all__ = ["tir"]

__getattr__ = forward("tvm.script")

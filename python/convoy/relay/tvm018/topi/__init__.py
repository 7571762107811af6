"""`tvm.topi`: the installed one; its schedules for each kind of processor were removed."""

from convoy.relay.tvm018.modules import forward

__getattr__ = forward("tvm.topi")

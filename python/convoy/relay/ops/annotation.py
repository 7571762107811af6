"""Operators that return their argument: copies, and the annotations of Relay's partitioner."""

from __future__ import annotations

import warnings
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Type
from convoy.relay.virtual_device import VirtualDevice, virtual_device

_ANNOTATIONS = [f"annotation.{n}" for n in ("stop_fusion", "compiler_begin", "compiler_end")]
_ANNOTATIONS.append("annotation.checkpoint")


@builder("copy")
def copy(data: Expr) -> Call:
    """Copy a tensor."""
    return make_call("copy", data)


@builder("annotation.stop_fusion")
def stop_fusion(data: Expr) -> Call:
    """Mark the end of a fusion group; without effect here."""
    return make_call("annotation.stop_fusion", data)


@builder("annotation.compiler_begin")
def compiler_begin(data: Expr, compiler: str) -> Call:
    """Mark an input of a subgraph for an external compiler; without effect here."""
    return make_call("annotation.compiler_begin", data, compiler=compiler)


@builder("annotation.compiler_end")
def compiler_end(data: Expr, compiler: str) -> Call:
    """Mark an output of a subgraph for an external compiler; without effect here."""
    return make_call("annotation.compiler_end", data, compiler=compiler)


@builder("annotation.checkpoint")
def checkpoint(data: Expr) -> Call:
    """Mark a value to keep for the backward pass; without effect here."""
    return make_call("annotation.checkpoint", data)


@builder("annotation.on_device")
def on_device(
    body: Expr, device: Any, constrain_result: bool = False, constrain_body: bool = True
) -> Call:
    """Mark the device of a value; a module runs on one device, whatever is marked.

    Args:
        body: The value.
        device: A TVM device, its name or a VirtualDevice.
        constrain_result: Whether the result is on the device.
        constrain_body: Whether the value is computed there; with neither the device is open.
    """
    found = virtual_device(device)
    return make_call(
        "on_device",
        body,
        virtual_device=found if constrain_result or constrain_body else VirtualDevice(),
        constrain_result=constrain_result,
        constrain_body=constrain_body,
    )


@builder("device_copy")
def device_copy(data: Expr, src_device: Any, dst_device: Any) -> Call:
    """Copy a tensor to another device; a module runs on one device, whatever is marked.

    Args:
        data: The tensor.
        src_device, dst_device: TVM devices, their names or VirtualDevices.
    """
    source, target = virtual_device(src_device), virtual_device(dst_device)
    return make_call("device_copy", data, src_virtual_device=source, dst_virtual_device=target)


@builder("debug")
def debug(expr: Expr, debug_func: Any = None) -> Call:
    """Return the expression; `debug_func` is not called, because compiled code runs."""
    if debug_func is not None:
        warnings.warn(
            "relay.debug does not call debug_func: return the value as a result to see it",
            stacklevel=2,
        )
    return make_call("debug", expr, debug_func=None)


@type_rule("copy", "on_device")
def infer_any(call: Inputs) -> Type:
    call.count(1)
    return call.type(0)


@type_rule(*_ANNOTATIONS, "device_copy", "debug")
def infer_tensor(call: Inputs) -> Type:
    call.count(1)
    return call.type(0)


@converter(*_ANNOTATIONS, "copy", "debug", "on_device", "device_copy")
def convert_identity(op: OpCall) -> RelaxExpr:
    """Return the argument: Convoy partitions and places the network itself."""
    return op.args[0]

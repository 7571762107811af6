"""TVM targets: their kinds, and those of devices that need not be present."""

from __future__ import annotations

import tvm

from ..errors import InvalidOption
from ..ir.device import Device
from ..runtime import present_device

KINDS = ("cuda", "llvm")


def kind_of(target: str | tvm.target.Target) -> str:
    """ "cuda" or "llvm"; raises InvalidOption for another target."""
    if isinstance(target, str) and target in KINDS:
        return target  # TVM warns of CUDA without a GPU, whose architecture it asks
    try:
        kind = str(tvm.target.Target(target).kind.name)
    except (ValueError, TypeError, KeyError, RuntimeError) as err:
        raise InvalidOption(f"target {target!r} ({err})", "cuda or llvm") from None
    if kind not in KINDS:
        raise InvalidOption(f"target {target!r}", "cuda or llvm")
    return kind


def cuda_target(device: Device) -> tvm.target.Target:
    """The target of a device that need not be present."""
    return tvm.target.Target({"kind": "cuda", "arch": f"sm_{device.arch}"})


def with_arch(target: str | tvm.target.Target, device: Device) -> str | tvm.target.Target:
    """The target, with the device's architecture where it is only a name and there is no GPU that
    TVM could ask: its default is too old for bfloat16."""
    return cuda_target(device) if target == "cuda" and present_device() is None else target

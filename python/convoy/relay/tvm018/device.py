"""Devices under the names of TVM 0.18."""

from __future__ import annotations

from typing import Any

import tvm

cpu, cuda = tvm.cpu, tvm.cuda
gpu = tvm.cuda
TVMContext = type(cpu())


def device(dev_type: Any, dev_id: int = 0) -> Any:
    """Return a device by the name of its kind, also by that of a target: "llvm" is the CPU.

    Args:
        dev_type: "cuda", "cpu", a command line such as "llvm -mcpu=core-avx2", or a Target.
        dev_id: Its number.
    """
    if isinstance(dev_type, int):
        return tvm.device(dev_type, dev_id)
    kind = str(getattr(getattr(dev_type, "kind", None), "name", dev_type)).strip()
    if kind.startswith("{"):  # how TVM prints a Target today
        kind = str(tvm.target.Target(kind).kind.name)
    word = kind.split()[0] if kind else ""
    return tvm.device({"llvm": "cpu", "c": "cpu", "gpu": "cuda"}.get(word, word), dev_id)


context = device

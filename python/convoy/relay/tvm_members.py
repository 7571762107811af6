"""Members that TVM's own objects had in version 0.18, added where they lack.

Nothing that an object has today is changed.
"""

from __future__ import annotations

from typing import Any

from convoy.relay.lazy import tvm


def _add(cls: type, **members: Any) -> None:
    for name, member in members.items():
        if not hasattr(cls, name):
            setattr(cls, name, member)


def add_members() -> None:
    """Add those of tensors, devices and targets."""
    _add(
        type(tvm.cpu(0)),
        device_type=property(lambda self: self.dlpack_device_type()),
        device_id=property(lambda self: self.index),
    )
    _add(
        tvm.runtime.Tensor,
        asnumpy=lambda self: self.numpy(),
        to_dlpack=lambda self: self.__dlpack__(),
        ctx=property(lambda self: self.device),
    )
    _add(
        tvm.target.Target,
        device_name=property(lambda self: str(self.attrs.get("device", ""))),
        max_num_threads=property(lambda self: int(self.attrs.get("max_num_threads", 1))),
        model=property(lambda self: str(self.attrs.get("model", "unknown"))),
        target_name=property(lambda self: str(self.kind.name)),
    )

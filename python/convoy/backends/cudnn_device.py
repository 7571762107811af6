"""Describe a GPU to cuDNN, which plans for it whether it is present or not."""

from __future__ import annotations

import json
from importlib import resources

from ..errors import NoGpu
from ..ir.device import Device
from ..runtime.device import current_device


def target_options(device: Device) -> dict[str, object]:
    """Options that make cuDNN plan for ``device``; none if it is the GPU that is present."""
    try:
        if current_device() == device:
            return {}
    except NoGpu:
        pass
    return {"deviceprop": json.dumps(device_properties(device))}


def device_properties(device: Device) -> dict[str, object]:
    """A description of ``device`` in cuDNN's form, after that of a real H200.

    Limits of the architecture that Device does not carry are the H200's; they are the same for
    compute capabilities 8.0 and 9.0.
    """
    text = (resources.files(__package__) / "data" / "h200.json").read_text(encoding="utf-8")
    properties: dict[str, object] = json.loads(text)["properties"]
    properties.update(
        deviceName=device.name,
        deviceVer=device.arch * 10,
        multiProcessorCount=device.sm_count,
        maxSharedMemoryPerBlockOptin=device.shared_memory_per_block,
        l2CacheSize=device.l2_bytes,
        totalGlobalMem=device.memory_bytes,
    )
    return properties

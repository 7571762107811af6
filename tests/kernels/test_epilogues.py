"""A kernel's configuration says all of its epilogue that its C ABI does not."""

from __future__ import annotations

import dataclasses

import pytest

from convoy.backends import registry
from convoy.backends.base import Decline
from convoy.backends.kernels.backend import KernelBackend
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

KERNELS = [name for name in registry.BUILT_IN if isinstance(registry.get(name), KernelBackend)]


@pytest.mark.parametrize("activation", ["relu", "clip", "sigmoid", "silu", "gelu"])
@pytest.mark.parametrize("groups", [1, 2, 64])
@pytest.mark.parametrize("backend", KERNELS)
def test_where_a_residual_is_added_makes_another_kernel(
    backend: str, groups: int, activation: str
) -> None:
    """Or is declined: the shape that a library is given does not tell."""
    before = Epilogue(residual=True, bias=True, activation=activation, clip_max=6.0)
    behind = dataclasses.replace(before, residual_last=True)
    found = []
    for epilogue in (before, behind):
        workload = Workload(
            "fprop", 1, 14, 14, 64, 64, 3, 3, padding=(1,) * 4, groups=groups, epilogue=epilogue
        )
        offers = registry.get(backend).propose(workload, Device())
        found.append(set() if isinstance(offers, Decline) else {offer.config for offer in offers})
    assert not found[0] & found[1]

"""Which kernels a test on a GPU runs: nvcc takes 10 to 40 CPU seconds for one of CUTLASS."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence

from convoy.backends.kernels import shipped
from convoy.backends.kernels.kernel import K


def kind(kernel: K, *fields: str) -> Hashable:
    """The class of a kernel, and fields of its configuration where it has them."""
    return type(kernel), *(getattr(kernel, field, "") for field in ("family", *fields))


def few(kernels: Iterable[K], most: int | None, *fields: str) -> Sequence[K]:
    """At least one kernel of each family, as :func:`kind` tells them apart, and up to ``most``:
    those first that ship compiled, then others, spread over the list. None: all that ship.

    CONVOY_GPU_KERNELS=all leaves all of them.
    """
    every = list(dict.fromkeys(kernels))
    if os.environ.get("CONVOY_GPU_KERNELS") == "all":
        return every
    if most is None:
        every.sort(key=lambda k: k.name)  # the same ones for every workload
    step = max(1, -(-len(every) // (most or 1)))
    spread = [*every[::step], *(k for i, k in enumerate(every) if i % step)]
    ready, rest = ([k for k in spread if shipped.has(k) == has] for has in (True, False))
    first = list({kind(k, *fields): k for k in reversed([*ready, *rest])}.values())
    if most is None:
        return list(dict.fromkeys([*first, *ready]))
    return list(dict.fromkeys([*first, *ready, *rest]))[: max(most, len(first))]

"""Native kernels for depthwise convolutions in all directions and precisions, and for grouped ones
forward on tensor cores, on sm_80 and later. See docs/design/depthwise-kernels.md."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import ModuleType

from ....ir.device import Device
from ....ir.dtypes import DTYPE_BYTES
from ....ir.epilogue import Epilogue
from ....ir.workload import Workload
from ..backend import Family, KernelBackend
from ..kernel import Launch as KernelLaunch
from . import grouped, space, staged
from .kernels import (
    DepthwiseKernel,
    GroupedKernel,
    StagedKernel,
    WgradKernel,
    kernel_from_json,
)

Launch = KernelLaunch[DepthwiseKernel]

#: In records, plans and ``backends=(...)``.
NAME = "depthwise"
#: Filter rows or columns, and strides of dgrad, at most.
MOST_FILTER, MOST_PHASES = 64, 4
_MOST_BYTES = 1 << 32


def depthwise_backend(limit: int = 6) -> KernelBackend[DepthwiseKernel]:
    """fprop with its epilogue; of depthwise convolutions dgrad and wgrad too. ``limit`` caps the
    candidates of a workload."""
    family = Family(
        name=NAME,
        libraries=("cuda", "kernels"),
        objections=_objections,
        launches=_launches,
        why_not=_why_not,
        workspace_bytes=_workspace_bytes,
        kernel_from_json=kernel_from_json,
        limit=limit,
        tensor_cores=False,
        estimate_us=_estimate_us,
        is_programmatic=lambda kernel: not isinstance(kernel, WgradKernel),
        sliced=_sliced,
    )
    return KernelBackend(family)


def _sliced(
    kernel: DepthwiseKernel, workload: Workload
) -> tuple[DepthwiseKernel, frozenset[str]] | None:
    """Forward, all kernels take any strides."""
    return (kernel, frozenset({"x", "residual", "y"})) if workload.op == "fprop" else None


def _rules(launch: Launch) -> ModuleType:
    """The module that knows the launch's kernel."""
    if isinstance(launch.kernel, StagedKernel):
        return staged
    return grouped if isinstance(launch.kernel, GroupedKernel) else space


def _launches(workload: Workload, device: Device) -> list[Launch]:
    """All launches. Where two kernels run the workload, theirs alternate, so that both are among
    the first."""

    def valid(rules: ModuleType) -> list[Launch]:
        found = [x for x in rules.launches(workload) if not _why_not(x, workload, device)]
        return sorted(found, key=us)

    def us(launch: Launch) -> tuple[float, int]:
        return _estimate_us(launch, workload, device), launch.swizzle

    if workload.is_depthwise:
        return valid(space)
    kernels = sorted(filter(None, map(valid, (staged, grouped))), key=lambda own: us(own[0]))
    alternated = itertools.chain.from_iterable(itertools.zip_longest(*kernels))
    return [launch for launch in alternated if launch is not None]


def _why_not(launch: Launch, workload: Workload, device: Device) -> str:
    if (_rules(launch) is space) != workload.is_depthwise:
        return f"{launch.kernel.name} takes other convolutions"
    return str(_rules(launch).why_not(launch, workload, device))


def _workspace_bytes(launch: Launch, workload: Workload, device: Device) -> int:
    return int(_rules(launch).workspace_bytes(launch, workload, device))


def _estimate_us(launch: Launch, workload: Workload, device: Device) -> float:
    return float(_rules(launch).guess_us(launch, workload, device))


def _objections(w: Workload, device: Device) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of everything that rules the kernels out, most telling first."""
    if w.is_back_to_back:
        yield f"op {w.op}", "use the hopper backend"
        return
    if w.op == "matmul" or w.groups == 1:
        found = f"{w.op} with groups = {w.groups}"
        yield f"{found}: only grouped convolutions", "use the cudnn or cutlass backend"
        return
    if device.arch < 80:
        yield f"architecture sm_{device.arch}: kernels need sm_80 or later", ""
    if w.out_dtype != w.dtype:
        yield f"{w.dtype} in, {w.out_dtype} out: both must be equal", ""
    if w.acc_dtype != "float32":
        yield f"acc_dtype {w.acc_dtype}: kernels accumulate in float32", ""
    if w.op in ("dgrad", "wgrad"):
        if w.epilogue != Epilogue():
            yield f"epilogue {w.epilogue.name} on {w.op}", "leave it outside the subgraph"
    elif w.epilogue.affine_relu or w.epilogue.activation not in space.ACTIVATIONS:
        known = ", ".join(space.ACTIVATIONS[1:])
        yield f"epilogue {w.epilogue.name}: only residual, bias and {known}", ""
    elif w.epilogue.residual_last:
        remedy = "leave the addition outside the subgraph"
        yield f"epilogue {w.epilogue.name}: a residual only before the activation", remedy
    yield from _depthwise_objections(w) if w.is_depthwise else grouped.objections(w)


def _depthwise_objections(w: Workload) -> Iterator[tuple[str, str]]:
    if max(w.r, w.s) > MOST_FILTER:
        yield f"a filter of {w.r}x{w.s}: at most {MOST_FILTER}x{MOST_FILTER}", ""
    if w.op == "dgrad":
        yield from _dgrad_objections(w)
    yield from _size_objections(w)


def _dgrad_objections(w: Workload) -> Iterator[tuple[str, str]]:
    if w.k != w.c:
        yield f"dgrad with {w.k // w.c} outputs of a channel", "use the cudnn backend"
    if max(w.stride) > MOST_PHASES:
        yield f"dgrad with stride {w.stride[0]}x{w.stride[1]}: at most {MOST_PHASES}", ""
    if w.stride != (1, 1) and w.dilation != (1, 1):
        yield "strided dgrad with dilation", "use the cudnn backend"


def _size_objections(w: Workload) -> Iterator[tuple[str, str]]:
    """Offsets have 32 bits, and positions stay far from where they wrap."""
    x, y = w.n * w.h * w.w, w.n * w.p * w.q
    largest = DTYPE_BYTES[w.dtype] * max(x * w.c, y * w.k)
    if max(x, y) >= _MOST_BYTES // 4 or largest >= _MOST_BYTES:
        yield "a tensor of 4 GiB or 2^30 pixels", "split the batch"
    (top, left, bottom, right), (dilation_h, dilation_w) = w.padding, w.dilation
    extents = [w.h + top + bottom, w.w + left + right, dilation_h * w.r, dilation_w * w.s]
    strips = (max(w.h, w.p) + dilation_h) * (max(w.w, w.q) + dilation_w) * w.n
    if max(*extents, w.k * w.r * w.s) >= 1 << 28 or strips >= 1 << 30 or w.k >= 1 << 19:
        yield "sizes beyond the kernels' index range", ""

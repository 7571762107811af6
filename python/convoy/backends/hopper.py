"""Own kernels for Hopper (sm_90a) where both libraries are weak: strided dgrad, and the stem."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ..errors import CompileFailed, InvalidOption
from ..ir.candidate import Candidate, Decline, make_config
from ..ir.device import Device
from ..ir.workload import Epilogue, Workload
from .base import Backend, Binary
from .kernels.cache import KernelCache
from .kernels.sm90 import space as space
from .kernels.sm90.compile import cache_key, compile_kernel, compile_many
from .kernels.sm90.kernels import LARGEST_TILE, MOST_PHASES, HopperKernel, kernel_from_json
from .kernels.sm90.stem import (
    LARGEST_STEM_FILTER,
    LARGEST_STEM_K,
    MOST_ROW_ELEMENTS,
    MOST_WINDOW_ROWS,
    MOST_WINDOW_STEPS,
    StemDgradKernel,
    StemFpropKernel,
    StemWgradKernel,
    window_row_elements,
    window_steps,
)
from .kernels.toolkit import find_toolkit

_log = logging.getLogger(__name__)

#: Most channels of the network's input for which the stem's kernel exists.
STEM_CHANNELS = 4


class HopperBackend(Backend):
    """dgrad, for strided convolutions above all, and all directions of a network's first one, in
    fp16 and bf16: see docs/hopper-kernels.md.

    ``limit`` caps the candidates of a workload.
    """

    name = "hopper"
    libraries = ("cuda", "kernels")

    def __init__(self, limit: int = 16) -> None:
        self._limit = limit
        self._failed: dict[HopperKernel, CompileFailed] = {}

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        """None when a kernel exists for the workload; the first reason against one otherwise."""
        for reason, remedy in _objections(workload, device):
            return Decline(self.name, reason, remedy)
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        """Candidates, best guess first; needs no compiler, only :meth:`build` does."""
        if (decline := self.accepts(workload, device)) is not None:
            return decline
        find = space.stem_launches if is_stem(workload) else space.dgrad_launches
        launches = find(workload, device)[: self._limit]
        return [self._candidate(workload, device, launch, i) for i, launch in enumerate(launches)]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Compiles (or takes from the cache) the candidate's kernel library.

        Raises LibraryMissing, CompileFailed, CacheUnwritable, and InvalidOption for a candidate
        that is not of this backend or not for this workload.
        """
        launch = launch_of(candidate)
        decline = self.accepts(workload, device)
        if decline is not None or not _fits(launch.kernel, workload):
            raise InvalidOption(
                f"candidate {candidate.key} for {workload.key}",
                decline.reason if decline else "a kernel for this workload",
            )
        if (error := self._failed.get(launch.kernel)) is not None:
            raise error
        entry = compile_kernel(launch.kernel)
        return Binary(
            {
                "workload": workload.to_json(),
                "backend": "kernel",
                "library": entry.sha256,
                "split_k": 1,
                "swizzle": launch.swizzle,
            },
            {entry.sha256: entry.read()},
        )

    def prepare(self, jobs: Sequence[tuple[Workload, Candidate]], device: Device) -> None:
        """Compiles all kernels of the jobs in parallel. A kernel that fails is logged here and
        raises its CompileFailed when it is built."""
        kernels = {launch_of(candidate).kernel for _, candidate in jobs} - self._failed.keys()
        for kernel, result in compile_many(kernels).items():
            if isinstance(result, CompileFailed):
                self._failed[kernel] = result
                _log.warning("%s", result)

    def kernel_source(self, candidate: Candidate) -> str:
        return f"hopper/{launch_of(candidate).kernel.family}_library.cuh"

    def is_ready(self, candidate: Candidate) -> bool:
        return KernelCache().get(cache_key(launch_of(candidate).kernel, find_toolkit())) is not None

    def _candidate(
        self, workload: Workload, device: Device, launch: space.Launch, rank: int
    ) -> Candidate:
        suffix = f".swizzle{launch.swizzle}" if launch.swizzle else ""
        return Candidate(
            backend=self.name,
            kernel=launch.kernel.name + suffix,
            config=make_config(kernel=launch.kernel.to_json(), swizzle=launch.swizzle),
            workspace=space.workspace_bytes(launch, workload, device),
            priority=rank,
            notes=("tensor_core",),
        )


def is_stem(workload: Workload) -> bool:
    """Whether a stem's kernel is meant for the workload rather than the general one."""
    return workload.c <= STEM_CHANNELS


def launch_of(candidate: Candidate) -> space.Launch:
    """Kernel and run-time choice of a candidate. Raises InvalidOption when it is not of here."""
    options = candidate.options()
    try:
        return space.Launch(kernel_from_json(options["kernel"]), int(options["swizzle"]))
    except KeyError as error:
        raise InvalidOption(
            f"candidate {candidate.key} without {error}", "a candidate of the hopper backend"
        ) from None


def _fits(kernel: HopperKernel, w: Workload) -> bool:
    """Whether a kernel is of the family and the compiled sizes that a workload needs."""
    if isinstance(kernel, StemFpropKernel):
        size = (kernel.channels, kernel.filter_h, kernel.filter_w)
        relu = w.epilogue.activation == "relu"
        return w.op == "fprop" and size == (w.c, w.r, w.s) and kernel.relu == relu
    if isinstance(kernel, StemWgradKernel):
        wanted = (w.c, w.r, w.s, w.stride[1])
        fields = (kernel.channels, kernel.filter_h, kernel.filter_w, kernel.stride_w)
        return w.op == "wgrad" and fields == wanted
    if isinstance(kernel, StemDgradKernel):
        return w.op == "dgrad" and kernel.channels == w.c
    no_taps = any(h.taps * x.taps == 0 for h, x in space.phases(w))
    return w.op == "dgrad" and not is_stem(w) and (kernel.zeros or not no_taps)


def _objections(w: Workload, device: Device) -> Iterator[tuple[str, str]]:
    """(reason, remedy) of everything that rules the kernels out, most telling first."""
    window = w.op in ("fprop", "wgrad")
    if not (w.op == "dgrad" or (window and is_stem(w))):
        found = f"op {w.op}" + (f" with C = {w.c}" if window else "")
        expected = f"only dgrad, and fprop and wgrad with at most {STEM_CHANNELS} channels"
        yield f"{found}: {expected}", "use the cudnn or cutlass backend"
        return
    if device.arch != 90:
        yield f"architecture sm_{device.arch}: the kernels are sm_90a code", ""
    if w.dilation != (1, 1):
        yield f"dilation {w.dilation[0]}x{w.dilation[1]}", "use the cudnn backend"
    if w.groups != 1:
        yield f"groups = {w.groups}", "use the cudnn backend"
    if w.dtype not in ("float16", "bfloat16") or w.out_dtype != w.dtype:
        yield f"{w.dtype} in, {w.out_dtype} out: both must be float16 or bfloat16", ""
    if w.acc_dtype != "float32":
        yield f"acc_dtype {w.acc_dtype}: kernels accumulate in float32", ""
    if w.k % 8:
        yield f"K = {w.k}", "pad K to a multiple of 8"
    if window:
        yield from _window_objections(w)
        return
    if w.epilogue != Epilogue():
        yield f"epilogue {w.epilogue.name}: dgrad writes dx alone", "leave it outside the region"
    yield from _stem_objections(w) if is_stem(w) else _general_objections(w)


def _window_objections(w: Workload) -> Iterator[tuple[str, str]]:
    size = f"a filter of {w.r}x{w.s} with C = {w.c}"
    if w.r > MOST_WINDOW_ROWS or window_steps(w.r, w.s, w.c) > MOST_WINDOW_STEPS:
        yield f"{size}: at most {MOST_WINDOW_ROWS} rows, {16 * MOST_WINDOW_STEPS} weights", ""
    elif window_row_elements(16, w.stride[1], w.padding[1], w.s, w.c) > MOST_ROW_ELEMENTS:
        yield f"stride {w.stride[1]}: 16 windows span over {MOST_ROW_ELEMENTS} elements", ""
    if w.stride[0] > w.r:
        yield f"stride {w.stride[0]} beyond the filter's {w.r} rows", ""
    if w.stride[1] * w.c % 2:
        yield f"C = {w.c} with stride {w.stride[1]}: windows at odd elements", "pad C to 4"
    if w.w * w.c % 8:
        yield f"rows of W * C = {w.w * w.c} elements", "a multiple of 8: pad C to 4 and W to even"
    e = w.epilogue
    if w.op == "wgrad" and e != Epilogue():
        yield f"epilogue {e.name}: wgrad writes dw alone", "leave it outside the region"
    if e.residual or e.affine_relu or e.activation not in ("none", "relu"):
        yield f"epilogue {e.name}: only bias and relu", "use the cudnn or cutlass backend"
    if w.k > 64 * 65535:
        yield f"K = {w.k}", ""


def _stem_objections(w: Workload) -> Iterator[tuple[str, str]]:
    if w.stride != (2, 2):
        yield f"C = {w.c} with stride {w.stride[0]}x{w.stride[1]}", "pad C to a multiple of 8"
    if max(w.r, w.s) > LARGEST_STEM_FILTER:
        yield f"C = {w.c} with a filter of {w.r}x{w.s} (at most 7x7)", "pad C to a multiple of 8"
    if w.k > LARGEST_STEM_K:
        yield f"C = {w.c} with K = {w.k} (at most {LARGEST_STEM_K})", "pad C to a multiple of 8"


def _general_objections(w: Workload) -> Iterator[tuple[str, str]]:
    if w.c % 8:
        yield f"C = {w.c}", "pad C to a multiple of 8"
    if w.stride[0] * w.stride[1] > MOST_PHASES:
        yield f"stride {w.stride[0]}x{w.stride[1]}: at most {MOST_PHASES} phases", ""
        return
    for h, x in space.phases(w):
        for axis, outputs in ((h, w.p), (x, w.q)):
            upper = axis.lower + axis.extent - outputs
            if axis.taps and not (axis.taps <= 256 and _corner(axis.lower) and _corner(upper)):
                yield "filter or padding beyond the copy engine's range of 128 pixels", ""
                return
    if w.n * w.h * w.w + LARGEST_TILE * w.stride[1] >= 1 << 31:
        yield "more than 2^31 pixels", "split the batch"


def _corner(value: int) -> bool:
    return -128 <= value <= 127

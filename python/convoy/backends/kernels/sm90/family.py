"""Native kernels for Hopper (sm_90a) where cuDNN and CUTLASS are slow: strided dgrad, the first
convolution of a network (the stem) in all directions and with what surrounds it, fprop of small
batches, 1x1 fprop with few input channels, 1x1 with depthwise convolutions behind them,
bottlenecks of residual networks, and squeeze-and-excitation blocks."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from ....ir.device import Device
from ....ir.dtypes import FLOAT_DTYPES, HALF_DTYPES
from ....ir.epilogue import Epilogue
from ....ir.workload import Workload
from ..backend import Family, KernelBackend
from . import bottleneck, expand_depthwise, halo, image, pointwise, small, space, squeeze_excite
from .bottleneck import BottleneckKernel
from .dgrad import LARGEST_TILE, MOST_PHASES, DgradKernel
from .expand_depthwise import ExpandDepthwiseKernel
from .halo import HaloConvKernel
from .image import ImageConvKernel
from .kernels import Sm90Kernel, StemKernel, kernel_from_json
from .pointwise import PointwiseConvKernel
from .small import SmallConvKernel
from .space import Launch
from .squeeze_excite import SqueezeExciteKernel
from .stem import (
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

#: In records, plans and ``backends=(...)``.
NAME = "hopper"
#: Most channels of the network's input for which the stem's kernels exist.
STEM_CHANNELS = 4
_WholeKernel = BottleneckKernel | ExpandDepthwiseKernel | SqueezeExciteKernel | ImageConvKernel
#: The rules and the kernel of each workload of several operations.
_WHOLE: dict[str, tuple[ModuleType, type[_WholeKernel]]] = {
    "bottleneck": (bottleneck, BottleneckKernel),
    "expand_depthwise": (expand_depthwise, ExpandDepthwiseKernel),
    "squeeze_excite": (squeeze_excite, SqueezeExciteKernel),
    "stem": (image, ImageConvKernel),
}
#: The rules of each kernel for small batches.
_SMALL: dict[type[SmallConvKernel], ModuleType] = {
    HaloConvKernel: halo,
    PointwiseConvKernel: pointwise,
    SmallConvKernel: small,
}
_PROGRAMMATIC: tuple[type[Sm90Kernel], ...] = (
    SmallConvKernel,
    *(kernel for _, kernel in _WHOLE.values()),
)


def sm90_backend(limit: int = 20) -> KernelBackend[Sm90Kernel]:
    """dgrad, strided convolutions above all, all directions of a network's first one, and small
    fprops, in fp16 and bf16, the last in float32 and tf32 too: see docs/design/sm90-kernels.md.
    ``limit`` caps the candidates of a workload."""
    family = Family(
        name=NAME,
        libraries=("cuda", "kernels"),
        objections=_objections,
        launches=_launches,
        why_not=why_not,
        workspace_bytes=space.workspace_bytes,
        kernel_from_json=kernel_from_json,
        limit=limit,
        is_programmatic=lambda kernel: isinstance(kernel, _PROGRAMMATIC),
        sliced=_sliced,
    )
    return KernelBackend(family)


def _sliced(kernel: Sm90Kernel, workload: Workload) -> tuple[Sm90Kernel, frozenset[str]] | None:
    """A kernel for small batches takes any strides."""
    is_small_conv = isinstance(kernel, SmallConvKernel)
    return (kernel, frozenset({"x", "residual", "y"})) if is_small_conv else None


def is_stem(workload: Workload) -> bool:
    """Return whether a stem's kernel is meant for the workload rather than the general one."""
    return workload.c <= STEM_CHANNELS


def is_small(workload: Workload) -> bool:
    """Return whether the kernel for small batches is meant for the workload."""
    return workload.op == "matmul" or (workload.op == "fprop" and not is_stem(workload))


def _launches(workload: Workload, device: Device) -> list[Launch]:
    if workload.op in _WHOLE:
        rules, kernel = _WHOLE[workload.op]
        swizzles = rules.swizzles(workload, device)
        return [Launch(kernel(workload.dtype), swizzle=swizzle) for swizzle in swizzles]
    if is_small(workload):
        return small_launches(workload, device)
    find = space.stem_launches if is_stem(workload) else space.dgrad_launches
    return find(workload, device)


def small_launches(workload: Workload, device: Device) -> list[Launch]:
    """The kernels for small batches with all tiles and splits, and that for 1x1 convolutions, best
    guess first."""
    kinds = (
        (small, None if small.too_large(workload) else small.kernel_of(workload)),
        (halo, halo.kernel_of(workload)),
        (pointwise, pointwise.kernel_of(workload)),
    )
    found = [
        (us, Launch(kernel, swizzle=swizzle))
        for kind, kernel in kinds
        if kernel is not None
        for us, swizzle in kind.guesses(workload, device)
    ]
    return [launch for _, launch in sorted(found, key=lambda pair: pair[0])]


def why_not(launch: Launch, workload: Workload, device: Device) -> str:
    """Return why a launch cannot run a workload without objections; empty if it can."""
    kernel, swizzle = launch.kernel, launch.swizzle
    if workload.op in _WHOLE:
        rules, kind = _WHOLE[workload.op]
        if isinstance(kernel, kind) and kernel.dtype == workload.dtype:
            fits = swizzle in rules.swizzles(workload, device)
            return "" if fits else f"swizzle {swizzle} is of other activations or another tile"
    if isinstance(kernel, SmallConvKernel):
        return str(_SMALL[type(kernel)].why_not(kernel, swizzle, workload))
    if isinstance(kernel, DgradKernel | StemKernel) and _fits(kernel, workload):
        return ""
    return f"{kernel.name} is of another operation or dtype, or compiled for other sizes"


def _fits(kernel: DgradKernel | StemKernel, w: Workload) -> bool:
    """Return whether a kernel is of the family and the compiled sizes that a workload needs."""
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
    window = w.op in ("fprop", "wgrad") and is_stem(w)
    if not (w.op in ("dgrad", *_WHOLE) or window or is_small(w)):
        found = f"op {w.op}" + (f" with C = {w.c}" if w.op == "wgrad" else "")
        expected = f"only dgrad, fprop, and wgrad with at most {STEM_CHANNELS} channels"
        yield f"{found}: {expected}", "use the cudnn or cutlass backend"
        return
    if device.arch != 90:
        yield f"architecture sm_{device.arch}: the kernels are sm_90a code", ""
    if w.dilation != (1, 1) and not (is_small(w) or w.op in _WHOLE):
        yield f"dilation {w.dilation[0]}x{w.dilation[1]}", "use the cudnn backend"
    if w.groups != 1 and w.op != "expand_depthwise":
        yield f"groups = {w.groups}", "use the cudnn backend"
    dtypes = FLOAT_DTYPES if is_small(w) else HALF_DTYPES
    if w.dtype not in dtypes or w.out_dtype != w.dtype:
        yield f"{w.dtype} in, {w.out_dtype} out: both must be {' or '.join(dtypes)}", ""
    if w.acc_dtype != "float32":
        yield f"acc_dtype {w.acc_dtype}: kernels accumulate in float32", ""
    if w.k % 8:
        yield f"K = {w.k}", "pad K to a multiple of 8"
    if is_small(w):
        yield from small.objections(w)
        if (reason := small.too_large(w)) and pointwise.kernel_of(w) is None:
            yield reason, "use the cudnn or cutlass backend"
        return
    if w.op in _WHOLE:
        rules, _ = _WHOLE[w.op]
        yield from rules.objections(w)
        return
    if window:
        yield from _window_objections(w)
        return
    if w.epilogue != Epilogue():
        yield f"epilogue {w.epilogue.name}: dgrad writes dx alone", "leave it outside the subgraph"
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
        yield f"epilogue {e.name}: wgrad writes dw alone", "leave it outside the subgraph"
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
                yield "filter or padding beyond TMA's range of 128 pixels", ""
                return
    if w.n * w.h * w.w + LARGEST_TILE * w.stride[1] >= 1 << 31:
        yield "more than 2^31 pixels", "split the batch"


def _corner(value: int) -> bool:
    return -128 <= value <= 127

#!/usr/bin/env python3
"""Compile the kernels that ship with convoy and pack them, one archive for each architecture.

    python tuning/ship_kernels.py --arch 90 --most 129     compile, then pack
    python tuning/ship_kernels.py --arch 90 --update       what ships, and kernels for all sizes
    python tuning/ship_kernels.py --arch 80 --pack         pack what the cache holds

Kernels of Hopper are chosen from the shipped records (convoy.tune.kernel_set); the best of them
also come for the precisions and epilogues that the records lack. For other GPUs, of which there
are no records, those come that the backend itself would try first for the recorded workloads. The
depthwise libraries run on both and lie in the archive of sm80. Those of int8 are the same for both.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from convoy import paths
from convoy.backends import registry
from convoy.backends.kernels import shipped
from convoy.backends.kernels.attention.kernel import TILES, AttentionKernel
from convoy.backends.kernels.cache import Entry, KernelCache
from convoy.backends.kernels.compile import cache_key, compile_many
from convoy.backends.kernels.cutlass import space
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.depthwise.kernels import (
    FILTERS,
    ConvKernel,
    GroupedKernel,
    StagedKernel,
    WgradKernel,
)
from convoy.backends.kernels.kernel import Kernel
from convoy.backends.kernels.sm90.bottleneck import BottleneckKernel
from convoy.backends.kernels.sm90.expand_depthwise import ExpandDepthwiseKernel
from convoy.backends.kernels.sm90.halo import HaloConvKernel
from convoy.backends.kernels.sm90.image import ImageConvKernel
from convoy.backends.kernels.sm90.pointwise import PointwiseConvKernel
from convoy.backends.kernels.sm90.small import CHOSEN, ELEMENT, SmallConvKernel
from convoy.backends.kernels.sm90.squeeze_excite import SqueezeExciteKernel
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.errors import InvalidOption
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.dtypes import HALF_DTYPES
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.records.store import RecordStore
from convoy.tune import kernel_set

NAMES = {90: "sm90a", 80: "sm80"}
A100 = Device("NVIDIA A100-SXM4-80GB", 80, 108, 166912, 41943040, 85899345920, 1.5e12)
#: Best kernels whose variants come too: for fprop, and for each of dgrad and wgrad.
VARIED, VARIED_BACKWARD = 8, 3
EPILOGUES = [
    {"activation": activation, "residual": residual}
    for residual in (False, True)
    for activation in (("none", "relu") if residual else ("none", "relu", "clip", "silu"))
]
DTYPES = ("float16", "bfloat16", "float32")
#: Kernels for GPUs other than Hopper, by epilogue.
PER_EPILOGUE = 8
#: Activations of MLPs and of mobile networks, of which there are no records, by family: as many of
#: the kernels that are best for recorded workloads with a relu.
LIKE_RELU = {"gelu": {"sm90_gemm": 3}, "hardswish": {"sm90_gemm": 2, "sm90_conv": 1}}
#: And for other GPUs, of those that :func:`guessed` tries first.
MORE_EPILOGUES = [{"activation": "gelu"}, {"activation": "hardswish"}]
PER_MORE_EPILOGUE = 3
#: Activations behind which residuals are added: those of Darknets and CSPNets.
BEFORE_RESIDUALS = ("relu", "silu", "hardswish", "leaky_relu", "mish")
#: Elements of a head of attention, as most transformers have them.
HEADS = (32, 64, 96, 128)


def recorded(most: int) -> Iterator[tuple[str, Kernel]]:
    """Kernels by the greedy cover of the shipped records, with what each step reaches."""
    times = kernel_set.times_by_kernel(RecordStore([paths.records_dir()]))
    print(f"{len(times)} workloads")
    for i, step in enumerate(kernel_set.choose(times, most), 1):
        backend, description = step.kernel
        kernel = registry.get(backend).family.kernel_from_json(json.loads(description))
        if i % 16 == 0:
            print(f"{i:4d} kernels: {step.mean:.5f} of the best, worst {step.worst:.3f}")
        yield backend, kernel


def variants(kernels: list[tuple[str, Kernel]]) -> Iterator[tuple[str, Kernel]]:
    """The first few CUTLASS kernels of each direction in all precisions, with all epilogues."""
    left = collections.Counter(fprop=VARIED, dgrad=VARIED_BACKWARD, wgrad=VARIED_BACKWARD)
    seen = set()
    for backend, kernel in kernels:
        if not isinstance(kernel, KernelConfig) or kernel.label in seen or not left[kernel.op]:
            continue
        seen.add(kernel.label)
        left[kernel.op] -= 1
        for dtype in DTYPES:
            for epilogue in EPILOGUES if kernel.op == "fprop" else ({},):
                changes = {"dtype": dtype, "out_dtype": dtype, **epilogue, "affine_relu": False}
                if dtype == "float32":  # tf32: as many bytes, half as many elements
                    m, n, k = kernel.tile
                    changes |= {"tile": (m, n, k // 2), "align": 4, "align_out": 4}
                try:
                    yield backend, dataclasses.replace(kernel, **changes)
                except InvalidOption:
                    continue  # a combination that does not exist


def narrow() -> Iterator[tuple[str, Kernel]]:
    """Kernels that fuse silu, which cuDNN does not, behind few output channels: the squeeze
    convolutions of EfficientNets, of which there are no records."""
    tiles = {"tile": [64, 64, 64], "activation": "silu"}
    conv = {"family": "sm80_conv", "warp": [32, 32], "stages": 4, **tiles}
    gemm = {"family": "sm90_gemm", "schedule": "pingpong", **tiles}
    backend = registry.get("cutlass")
    for description in ({**conv, "align_out": 2}, {**conv, "align_out": 4}, gemm):
        yield "cutlass", backend.family.kernel_from_json(description)


def like_relu() -> Iterator[tuple[str, Kernel]]:
    """Kernels of LIKE_RELU: tiles by the greedy cover of the records with a relu, in float16."""
    times = kernel_set.times_by_kernel(RecordStore([paths.records_dir()]))
    relu = {w: found for w, found in times.items() if w.epilogue.activation == "relu"}
    for activation, families in LIKE_RELU.items():
        for family, count in families.items():
            own = {w: _whole_tiles(found, family) for w, found in relu.items()}
            for step in kernel_set.choose({w: found for w, found in own.items() if found}, count):
                _, description = step.kernel
                kernel = KernelConfig.from_json(json.loads(description))
                yield "cutlass", dataclasses.replace(kernel, activation=activation)


def strided(kernels: Iterable[tuple[str, Kernel]]) -> Iterator[tuple[str, Kernel]]:
    """Kernels in float16 once more, for slices of wider tensors: the same device code."""
    for backend, kernel in kernels:
        if not isinstance(kernel, KernelConfig) or not kernel.can_be_strided:
            continue
        if kernel.dtype == kernel.out_dtype == "float16":
            yield backend, dataclasses.replace(kernel, strided=True)


def _whole_tiles(
    times: Mapping[kernel_set.Kernel, float], family: str
) -> dict[kernel_set.Kernel, float]:
    """Times of a family's kernels that have a relu, no residual and no second output."""
    found = {}
    for (backend, description), us in times.items():
        kernel = json.loads(description) if backend == "cutlass" else {}
        plain = not any(kernel.get(name) for name in ("residual", "affine_relu", "scheduler"))
        if kernel.get("family") == family and plain and kernel.get("activation") == "relu":
            found[backend, description] = us
    return found


def attention(arch: int) -> Iterator[tuple[str, Kernel]]:
    """Attention for the usual sizes of heads."""
    for dim in HEADS:
        for tile in TILES:
            for dtype in ("float16", "bfloat16"):
                yield "attention", AttentionKernel(dim, dim, *tile, dtype, arch)


def guessed(device: Device) -> Iterator[tuple[str, Kernel]]:
    """For each precision and epilogue the kernels that come first for most workloads."""
    workloads = {record.workload for record in RecordStore([paths.records_dir()])}
    backend = registry.get("cutlass")
    for dtype in DTYPES:
        math = "tf32" if dtype == "float32" else "default"
        more = MORE_EPILOGUES if dtype == "float16" else []
        for epilogue in EPILOGUES + more:
            counts: collections.Counter[Kernel] = collections.Counter()
            for workload in workloads:
                if workload.op == "matmul" or (epilogue != EPILOGUES[0] and workload.op != "fprop"):
                    continue
                with_bias = (
                    Epilogue(bias=True, **epilogue) if workload.op == "fprop" else Epilogue()
                )
                asked = dataclasses.replace(
                    workload, dtype=dtype, out_dtype=dtype, math=math, epilogue=with_bias
                )
                launches = backend.family.launches(asked, device)
                if not isinstance(launches, Decline):
                    counts.update({launch.kernel for launch in launches[:3]})
            most = PER_MORE_EPILOGUE if epilogue in more else PER_EPILOGUE
            for kernel, _ in counts.most_common(most):
                yield "cutlass", kernel


def depthwise() -> Iterator[tuple[str, Kernel]]:
    """Depthwise and grouped kernels, each for sm_80 and sm_90 at once."""
    for size in FILTERS:
        for dtype in DTYPES:
            yield "depthwise", ConvKernel(size, dtype)
            yield "depthwise", WgradKernel(size, dtype)
    for dtype in ("float16", "bfloat16"):
        yield "depthwise", GroupedKernel(dtype)
        yield "depthwise", StagedKernel(dtype)


def small() -> Iterator[tuple[str, Kernel]]:
    """Kernels for small batches, 1x1 convolutions and whole stems, which serve all sizes."""
    epilogues = [("", False), *((name, True) for name in BEFORE_RESIDUALS)]
    epilogues += [(name, False) for name in ACTIVATIONS[1:] if name not in CHOSEN]
    for dtype in ELEMENT:
        for epilogue in epilogues:
            yield "hopper", SmallConvKernel(dtype, *epilogue)
            if dtype != "float32":
                yield "hopper", HaloConvKernel(dtype, *epilogue)
            if dtype in HALF_DTYPES:
                yield "hopper", PointwiseConvKernel(dtype, *epilogue)
    for dtype in HALF_DTYPES:
        yield "hopper", BottleneckKernel(dtype)
        yield "hopper", ExpandDepthwiseKernel(dtype)
        yield "hopper", ImageConvKernel(dtype)
        yield "hopper", SqueezeExciteKernel(dtype)


def shipping(path: Path) -> Iterator[tuple[str, Kernel]]:
    """Kernels of an archive, as today's sources have them."""
    for entry in shipped.Archive.open(path).entries.values():
        backend = entry["backend"]
        yield backend, registry.get(backend).family.kernel_from_json(entry["kernel"])


def integers(arch: int) -> Iterator[tuple[str, Kernel]]:
    """int8 in wide vectors, requantized; some of first layers, and with sums as their result."""
    sums = Workload(
        "fprop", 1, 56, 56, 64, 64, 1, 1, dtype="int8", out_dtype="int32", acc_dtype="int32"
    )
    clip = Epilogue(bias=True, activation="clip", clip_max=255)
    narrow = dataclasses.replace(sums, out_dtype="int8", epilogue=clip)
    first = dataclasses.replace(narrow, c=4, r=7, s=7)
    kernels = list(space.kernels(narrow, arch))
    kernels += [k for k in space.kernels(first, arch) if k.iterator == "fixed_channels"][::2]
    kernels += list(space.kernels(sums, arch))[::3]
    yield from (("cutlass", kernel) for kernel in kernels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", type=int, choices=sorted(NAMES), default=90)
    parser.add_argument("--most", type=int, default=129, help="kernels chosen from the records")
    parser.add_argument(
        "--update", action="store_true", help="of the archive as it is, with kernels for all sizes"
    )
    parser.add_argument("--list", action="store_true", help="print the kernels, compile nothing")
    parser.add_argument("--pack", action="store_true", help="only pack what is compiled already")
    parser.add_argument("--out", type=Path, default=paths.codegen_dir() / "compiled")
    options = parser.parse_args()
    started = time.monotonic()
    path = options.out / f"{NAMES[options.arch]}.zip"
    if options.update:
        chosen = [*shipping(path), *(small() if options.arch == 90 else depthwise())]
    elif options.arch == 90:
        chosen = list(recorded(options.most))
        chosen += variants(chosen)
        chosen += narrow()
        chosen += like_relu()
        chosen += small()
        chosen += strided(list(chosen))
    else:
        chosen = [*guessed(A100), *depthwise()]
    if not options.update:
        chosen += attention(options.arch)
        chosen += integers(options.arch)
    backend_of = {kernel: backend for backend, kernel in chosen}
    print(f"{len(backend_of)} kernels chosen in {time.monotonic() - started:.0f} s", flush=True)
    if options.list:
        print(*sorted(kernel.name for kernel in backend_of), sep="\n")
        return
    toolkit, cache = find_toolkit(), KernelCache()
    found: dict[Kernel, object] = {}
    if options.pack:
        for kernel in backend_of:
            found[kernel] = shipped.find(kernel) or cache.get(cache_key(kernel, toolkit))
    else:  # those that ship already and whose code has not changed stay as they are
        found.update(compile_many(backend_of, progress=_show))
        print(f"compiled after {time.monotonic() - started:.0f} s", flush=True)
    libraries = {kernel: entry for kernel, entry in found.items() if isinstance(entry, Entry)}
    for kernel in found.keys() - libraries.keys():
        print(f"left out: {kernel.name}: {found[kernel] or 'not compiled'}")
    shipped.pack(path, toolkit.version, libraries, backend_of)
    print(f"{path.name}: {len(libraries)} kernels, {path.stat().st_size / 1e6:.1f} MB")


def _show(done: int, of: int, kernel: Kernel, seconds: float) -> None:
    print(f"{done}/{of} {kernel.name} {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""The problems that Convoy's own kernels are checked on.

python tests/sm90/cases.py --dump-jobs jobs.jsonl
compute-sanitizer --tool memcheck python tests/sm90/lab.py --worker < jobs.jsonl
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab import Job

from convoy.backends.kernels.cache import Entry
from convoy.backends.kernels.compile import compile_many
from convoy.backends.kernels.sm90 import space
from convoy.backends.kernels.sm90.family import is_stem, small_launches
from convoy.backends.kernels.sm90.kernels import Sm90Kernel
from convoy.backends.kernels.sm90.pointwise import PointwiseConvKernel
from convoy.backends.kernels.sm90.small import SmallConvKernel
from convoy.backends.kernels.sm90.stem import StemDgradKernel, StemFpropKernel, StemWgradKernel
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload

HALF, BRAIN = "float16", "bfloat16"


def dgrad(**changes: Any) -> Workload:
    """3x3 stride 2 over 3x33x47x24 with K = 40 and padding 1, unless changed."""
    fields: dict[str, Any] = {"op": "dgrad", "n": 3, "h": 33, "w": 47, "c": 24, "k": 40}
    fields |= {"r": 3, "s": 3, "stride": (2, 2), "padding": (1, 1, 1, 1)}
    return Workload(**fields | changes)


def wgrad(**changes: Any) -> Workload:
    """7x7 stride 2 over 3x33x48x3 with K = 40 and padding 3, unless changed."""
    fields: dict[str, Any] = {"op": "wgrad", "n": 3, "h": 33, "w": 48, "c": 3, "k": 40, "r": 7}
    fields |= {"s": 7, "stride": (2, 2), "padding": (3, 3, 3, 3)}
    return Workload(**fields | changes)


BIAS, RELU = Epilogue(bias=True), Epilogue(bias=True, activation="relu")


def fprop(**changes: Any) -> Workload:
    """7x7 stride 2 over 3x33x48x3 with K = 40, padding 3, bias and relu, unless changed."""
    fields: dict[str, Any] = {"op": "fprop", "n": 3, "h": 33, "w": 48, "c": 3, "k": 40, "r": 7}
    fields |= {"s": 7, "stride": (2, 2), "padding": (3, 3, 3, 3), "epilogue": RELU}
    return Workload(**fields | changes)


#: Odd sizes and borders for the general kernel.
SHAPES = [
    dgrad(),
    dgrad(n=1),
    dgrad(n=8, padding=(0, 1, 2, 3)),
    dgrad(padding=(3, 0, 1, 2)),
    dgrad(stride=(3, 3), padding=(2, 1, 0, 3)),
    dgrad(stride=(1, 2)),
    dgrad(stride=(2, 1), padding=(0, 0, 0, 0)),
    dgrad(stride=(3, 2), r=5, s=4, padding=(2, 3, 1, 0)),
    dgrad(r=7, s=7, padding=(3, 3, 3, 3)),
    dgrad(r=2, s=6, padding=(0, 3, 1, 2)),
    dgrad(r=5, s=5, padding=(2, 2, 2, 2), c=136, k=72),
    dgrad(r=1, s=1, padding=(0, 0, 0, 0)),
    dgrad(r=1, s=1, padding=(0, 0, 0, 0), c=264, k=200, n=1),
    dgrad(r=1, s=3, padding=(0, 1, 0, 1)),
    dgrad(r=2, s=1, stride=(3, 3), padding=(1, 0, 2, 0)),
    dgrad(r=1, s=1, stride=(3, 3), padding=(1, 2, 1, 0)),
    dgrad(h=1, w=9, n=1, r=1, s=1, padding=(1, 0, 1, 0)),  # no tap reaches the only row
    dgrad(h=7, w=7, c=512, k=512, n=1),
    dgrad(h=14, w=14, c=256, k=256, n=8),
    dgrad(h=28, w=30, c=128, k=128, n=8, padding=(0, 0, 1, 1)),
    dgrad(h=56, w=56, c=64, k=64, n=8, r=1, s=1, padding=(0, 0, 0, 0)),
]

#: For the stem's dgrad; c is replaced by the channels that the kernel is compiled for.
STEM_SHAPES = [
    dgrad(c=3, k=64, r=7, s=7, padding=(3, 3, 3, 3), n=2, h=224, w=224),
    # With chunks of 5 rows 184 blocks, two on an SM, all of dy in L2: shows races.
    dgrad(c=3, k=64, r=7, s=7, padding=(3, 3, 3, 3), n=8, h=224, w=224),
    dgrad(c=3, k=64, r=7, s=7, padding=(3, 3, 3, 3)),
    dgrad(c=3, k=40, r=7, s=7, padding=(0, 1, 2, 3), n=1),
    dgrad(c=3, k=32, r=3, s=3, padding=(0, 0, 0, 0), n=8, h=299, w=299),
    dgrad(c=3, k=24, r=3, s=3, padding=(1, 1, 1, 1), h=40, w=48),
    dgrad(c=3, k=128, r=5, s=6, padding=(2, 0, 1, 3)),
    dgrad(c=3, k=72, r=2, s=1, padding=(1, 0, 0, 0), n=1, h=18, w=500),
    dgrad(c=3, k=8, r=1, s=7, padding=(0, 6, 0, 5), n=1),
    dgrad(c=3, k=96, r=4, s=4, padding=(1, 1, 1, 1), h=512, w=512, n=1),
]

#: For the stem's fprop.
FPROP_SHAPES = [
    fprop(n=2, h=224, w=224, k=64),
    fprop(n=8, h=224, w=224, k=64),
    fprop(r=4, s=4, padding=(1, 1, 1, 1), k=16),  # an even window, an odd border
    fprop(),
    fprop(n=1, padding=(0, 1, 2, 3), epilogue=Epilogue(activation="relu")),
    fprop(n=8, padding=(5, 0, 0, 6), epilogue=BIAS),
    fprop(k=136, h=20, w=304, c=4, epilogue=Epilogue()),
    fprop(r=3, s=3, padding=(0, 0, 0, 0), h=299, w=304, k=32, n=4),
    fprop(r=3, s=3, padding=(1, 1, 1, 1), c=4, k=24, stride=(1, 1), w=46),
    fprop(r=4, s=4, padding=(0, 2, 1, 0), c=4, k=96, stride=(4, 4), h=64, w=64),
    fprop(r=11, s=11, padding=(2, 2, 2, 2), c=1, k=64, stride=(4, 4), h=227, w=232),
    fprop(r=5, s=2, padding=(2, 1, 0, 0), c=2, k=64, stride=(3, 1), w=52),
    fprop(h=1, w=8, n=1, k=8, padding=(3, 3, 3, 3)),
]

#: For the stem's wgrad.
WGRAD_SHAPES = [
    wgrad(n=2, h=224, w=224, k=64),
    wgrad(n=8, h=224, w=224, k=64),
    wgrad(),
    wgrad(n=1, padding=(0, 1, 2, 3)),
    wgrad(n=8, padding=(5, 0, 0, 6), h=47),
    wgrad(r=4, s=4, padding=(1, 1, 1, 1), k=16),  # an even window, an odd border
    wgrad(k=136, h=20, w=304, c=4),
    wgrad(r=3, s=3, padding=(0, 0, 0, 0), h=299, w=304, k=32, n=4),
    wgrad(r=3, s=3, padding=(1, 1, 1, 1), c=4, k=24, stride=(1, 1), w=46),
    wgrad(r=4, s=4, padding=(0, 2, 1, 0), c=4, k=96, stride=(4, 4), h=64, w=64),
    wgrad(r=11, s=11, padding=(2, 2, 2, 2), c=1, k=64, stride=(4, 4), h=227, w=232),
    wgrad(r=5, s=2, padding=(2, 1, 0, 0), c=2, k=64, stride=(3, 1), w=52),
    wgrad(r=2, s=3, padding=(0, 1, 1, 0), c=4, k=8, stride=(1, 3), w=50, n=1),
    wgrad(r=7, s=9, c=4, k=64, padding=(3, 4, 3, 4), n=1),  # five warpgroups
    wgrad(h=1, w=8, n=1, k=8),
]


def small_fprop(**changes: Any) -> Workload:
    """3x3 over 3x9x13x72 with K = 40, padding 1, bias, residual and relu, unless changed."""
    fields: dict[str, Any] = {"h": 9, "w": 13, "c": 72, "r": 3, "s": 3, "stride": (1, 1)}
    fields |= {"padding": (1, 1, 1, 1), "epilogue": dataclasses.replace(RELU, residual=True)}
    return fprop(**fields | changes)


#: For small_conv.
SMALL_SHAPES = [
    small_fprop(),
    small_fprop(n=1, h=8, w=8, c=512, k=512),
    small_fprop(h=14, w=14, c=256, k=264, epilogue=Epilogue()),
    small_fprop(r=1, s=1, padding=(0, 0, 0, 0), c=520, k=136),
    small_fprop(r=1, s=1, padding=(0, 0, 0, 0), c=8, k=8, n=1, h=1, w=1),
    small_fprop(stride=(2, 3), padding=(2, 0, 1, 3), epilogue=BIAS),
    small_fprop(r=5, s=2, padding=(0, 1, 2, 0), c=24),
    small_fprop(n=9, h=7, w=7, c=136, k=72),
    small_fprop(n=2, h=5, w=150, c=72, k=136, dilation=(2, 1)),
    small_fprop(r=1, s=7, padding=(0, 3, 0, 3), c=192, k=64),
]
#: And its epilogues with an activation of their own.
SMALL_EPILOGUES = [
    *(Epilogue(bias=True, activation=name) for name in ("gelu", "gelu_tanh", "tanh", "softplus")),
    Epilogue(activation="elu", alpha=1.0),
    Epilogue(bias=True, residual=True, activation="mish"),
    Epilogue(bias=True, residual=True, activation="leaky_relu", alpha=0.1, residual_last=True),
    Epilogue(residual=True, activation="hardswish", residual_last=True),
    Epilogue(bias=True, residual=True, activation="silu", residual_last=True),
]


def pointwise(**changes: Any) -> Workload:
    """1x1 over 3x9x13x72 with K = 136, bias, residual and relu, unless changed."""
    return small_fprop(**{"r": 1, "s": 1, "padding": (0, 0, 0, 0), "k": 136} | changes)


#: For pointwise_conv: fewer tiles than a block has stages, and more; one pixel; channels that fill
#: chunks and blocks, and that do not.
POINTWISE_SHAPES = [
    pointwise(),
    pointwise(n=1, h=1, w=1, c=8, k=8),
    pointwise(n=40, c=16, k=96),
    pointwise(n=40, c=24, k=144, epilogue=Epilogue()),
    pointwise(n=12, c=136, k=520, epilogue=BIAS),
    pointwise(n=2, h=56, w=56, c=64, k=256),
    pointwise(n=5, c=200, k=200, epilogue=dataclasses.replace(RELU, activation="silu")),
    *(pointwise(epilogue=epilogue) for epilogue in SMALL_EPILOGUES),
]


def pointwise_workloads() -> Iterator[Workload]:
    for shape in POINTWISE_SHAPES:
        for dtype in (HALF, BRAIN):
            yield dataclasses.replace(shape, dtype=dtype, out_dtype=dtype)


def small_workloads() -> Iterator[Workload]:
    """small_conv's problems in all its dtypes."""
    shapes = [*SMALL_SHAPES, *(small_fprop(epilogue=epilogue) for epilogue in SMALL_EPILOGUES)]
    for shape in shapes:
        for dtype, math in ((HALF, ""), (BRAIN, ""), ("float32", ""), ("float32", "tf32")):
            yield dataclasses.replace(shape, dtype=dtype, out_dtype=dtype, math=math or "default")


def kernels() -> list[Sm90Kernel]:
    """Every kernel that the backend proposes for some shape, in all its dtypes."""
    found: dict[Sm90Kernel, None] = {
        launch.kernel: None
        for w in (*small_workloads(), *pointwise_workloads())
        for launch in small_launches(w, Device())
    }
    for dtype in (HALF, BRAIN):
        for zeros in (False, True):
            filter_size = 1 if zeros else 3
            w = dgrad(c=512, k=64, r=filter_size, s=filter_size, dtype=dtype, out_dtype=dtype)
            for launch in space.dgrad_launches(w, Device()):
                found[launch.kernel] = None
        found |= {StemDgradKernel(c, dtype): None for c in (1, 2, 3, 4)}
        for shape in [*FPROP_SHAPES, *WGRAD_SHAPES]:
            w = dataclasses.replace(shape, dtype=dtype, out_dtype=dtype)
            found |= {launch.kernel: None for launch in space.stem_launches(w, Device())}
    return list(found)


def check_jobs(libraries: Mapping[Sm90Kernel, str]) -> list[Job]:
    """Every kernel over the shapes that it can do, grouped by shape so that operands are kept."""
    jobs = []
    for shape in [*SHAPES, *STEM_SHAPES]:
        for kernel, library in libraries.items():
            if isinstance(kernel, (SmallConvKernel, StemFpropKernel, StemWgradKernel)):
                continue
            w = dataclasses.replace(shape, dtype=kernel.dtype, out_dtype=kernel.dtype)
            if isinstance(kernel, StemDgradKernel) != is_stem(shape):
                continue
            if isinstance(kernel, StemDgradKernel):
                w = dataclasses.replace(w, c=kernel.channels)
                runs = [(0, 0), (5, 0), (0, 2)]
            else:
                if not kernel.zeros and any(h.taps * x.taps == 0 for h, x in space.phases(w)):
                    continue
                runs = [(space.UNITS, 0), (space.SORTED, 0), (space.UNITS, 2), (space.SORTED, 2)]
            jobs += [Job(kernel.name, w, library, swizzle, sms) for swizzle, sms in runs]
    for shape in [*FPROP_SHAPES, *WGRAD_SHAPES]:
        for dtype in (HALF, BRAIN):
            w = dataclasses.replace(shape, dtype=dtype, out_dtype=dtype)
            for kernel in {launch.kernel: None for launch in space.stem_launches(w, Device())}:
                if kernel in libraries:
                    runs = [(0, 0), (5, 0), (0, 2), (1, 3)]
                    jobs += [Job(kernel.name, w, libraries[kernel], *run) for run in runs]
    for w in small_workloads():
        for launch in small_launches(w, Device()):
            if launch.kernel in libraries:
                library = libraries[launch.kernel]
                jobs.append(Job(launch.kernel.name, w, library, launch.swizzle))
    for w in pointwise_workloads():
        for launch in small_launches(w, Device()):
            if isinstance(launch.kernel, PointwiseConvKernel) and launch.kernel in libraries:
                name, library = launch.kernel.name, libraries[launch.kernel]
                # With few blocks each has many tiles.
                jobs += [Job(name, w, library, launch.swizzle, sms) for sms in (0, 2)]
    return sorted(jobs, key=lambda job: job.workload.key)


def main() -> int:
    """Compile all kernels and write the check jobs for ``lab.py --worker``; 1 if some do not
    compile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump-jobs", type=Path, required=True)
    options = parser.parse_args()
    compiled = compile_many(kernels())
    libraries = {k: str(e.path) for k, e in compiled.items() if isinstance(e, Entry)}
    lines = [json.dumps(job.to_json()) for job in check_jobs(libraries)]
    options.dump_jobs.write_text("\n".join(lines) + "\n")
    return int(libraries.keys() != compiled.keys())


if __name__ == "__main__":
    raise SystemExit(main())

#!/usr/bin/env python3
"""Write the workload lists of well-known networks: tuning/workloads/NETWORK-OP-DTYPE.jsonl.

    python tuning/make_workloads.py                      # all, for batch sizes 1, 8, 32 and 256
    python tuning/make_workloads.py resnet18 resnet50 --op dgrad
    python tuning/make_workloads.py resnet50 --op training --batches 8 64
    python tuning/make_workloads.py resnet50 --batches 8 16 --precision bfloat16 --out folder
    python tuning/make_workloads.py --op stem            # first convolutions of other networks
    python tuning/make_workloads.py --op expand_depthwise   # inverted residuals of torchvision's
    python tuning/make_workloads.py --op bottleneck      # of residual networks, at many sizes
    python tuning/make_workloads.py --op squeeze_excite  # of torchvision's and SE-ResNet-50

A list holds the workloads that placement on an H200 needs measurements of: each distinct
convolution with each epilogue that may be fused into it, and parallel branches with one input as
one convolution; of a training step the convolutions, their gradients and the GEMMs.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from convoy.backends.kernels.sm90 import bottleneck, squeeze_excite
from convoy.ir.bottleneck import Bottleneck
from convoy.ir.device import Device
from convoy.ir.epilogue import NO_EPILOGUE, Epilogue
from convoy.ir.squeeze_excite import SqueezeExcite
from convoy.ir.stem import Stem
from convoy.ir.workload import Workload
from convoy.ir.workload_list import write
from convoy.pipeline import workloads_of
from convoy.relay import testing
from convoy.relay.convert import to_relax
from convoy.training import LossModule, Sgd
from convoy.training import resnet50 as trained_resnet50

BATCHES = (1, 8, 32, 256)
NETWORKS: dict[str, Callable[[int], Any]] = {
    "resnet18": lambda n: testing.resnet.get_workload(n, num_layers=18),
    "resnet50": lambda n: testing.resnet.get_workload(n, num_layers=50),
    "inception_v3": lambda n: testing.inception_v3.get_workload(n),
    "googlenet": lambda n: testing.googlenet.get_workload(n),
    "squeezenet": lambda n: testing.squeezenet.get_workload(n, version="1.1"),
    "densenet121": lambda n: testing.densenet.get_workload(batch_size=n),
    "mobilenet_v2": lambda n: testing.mobilenet_v2.get_workload(n),
    "resnext50": lambda n: testing.resnext.get_workload(n),
}

#: First convolutions of other families of networks, with their pixels, channels, filter, stride,
#: padding, max-pool (size, stride, padding) and activation.
STEMS: tuple[tuple[int, int, int, int, int, tuple[int, int, int] | None, str], ...] = (
    (224, 64, 7, 2, 3, (3, 2, 1), "relu"),
    (224, 32, 3, 2, 1, None, "silu"),
    (224, 32, 3, 2, 1, None, "relu"),
    (224, 16, 3, 2, 1, None, "hardswish"),
    (224, 24, 3, 2, 1, (3, 2, 1), "relu"),
    (299, 32, 3, 2, 0, None, "relu"),
    (224, 64, 3, 1, 1, None, "relu"),
    (256, 64, 3, 1, 1, None, "relu"),
    (224, 96, 4, 4, 0, None, "none"),
    (224, 64, 11, 4, 2, (3, 2, 0), "relu"),
    (640, 32, 3, 2, 1, None, "silu"),
)
#: Their batch sizes in float32, and of images that come in 16 bits.
STEM_BATCHES = {"float32": (1, 8, 64), "float16": (1, 8)}

#: Networks of torchvision with inverted residuals, and their batch sizes.
INVERTED = (
    *("mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "efficientnet_b0"),
    *("efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_v2_s", "mnasnet1_0"),
)
INVERTED_BATCHES = (1, 8, 32, 64)

#: Heights and widths of bottlenecks, with their batch sizes: of networks of 224x224 pixels, then of
#: detectors and of other images.
BOTTLENECK_SIZES: dict[tuple[int, int], tuple[int, ...]] = {
    (56, 56): (1, 8, 32, 64, 256),
    **{(size, size): (1, 2, 8) for size in (28, 64, 72, 80, 96, 112, 128)},
    **dict.fromkeys(((100, 136), (200, 272)), (1, 2, 8)),
}
#: C = K, results of the second and of the third convolution, at all these sizes.
BOTTLENECKS = ((64, 256, 0), (64, 256, 64), (64, 256, 128))
#: Others, at 56x56 and 32x32.
OTHER_BOTTLENECKS = (
    *((32, 128, 0), (32, 128, 32), (48, 192, 0), (48, 192, 48)),
    *((64, 128, 0), (64, 128, 64), (64, 64, 0), (64, 64, 64)),
)
OTHER_SIZES, OTHER_BATCHES = ((56, 56), (32, 32)), (1, 8, 64)
#: With more channels, at sizes of their own.
WIDE_BOTTLENECKS = ((128, 512, 0), (128, 512, 128))
WIDE_SIZES = {(28, 28): (1, 4, 8, 16, 32, 64, 256), **dict.fromkeys(((50, 68), (100, 136)), (1, 8))}

#: Networks of torchvision with squeeze-and-excitation blocks, and the batch sizes of these.
SQUEEZED = (
    *(f"efficientnet_b{size}" for size in range(5)),
    *("efficientnet_v2_s", "mobilenet_v3_large", "mobilenet_v3_small"),
    *("regnet_y_400mf", "regnet_y_1_6gf", "regnet_y_3_2gf"),
)
SQUEEZED_BATCHES = (1, 8, 32)
#: Heights and widths, channels and squeezed channels of SE-ResNet-50.
SE_RESNET = ((56, 256, 16), (28, 512, 32), (14, 1024, 64), (7, 2048, 128))

TRAINED: dict[str, Callable[[int], LossModule]] = {"resnet50": trained_resnet50}


def workloads(network: str, batch: int, precision: str) -> list[Workload]:
    module, params = NETWORKS[network](batch)
    relax = to_relax(module, {name: value.numpy() for name, value in params.items()})
    return workloads_of(relax, precision=precision, device=Device(), search="exact")


def gradients(network: str, batch: int, precision: str, op: str) -> list[Workload]:
    """The distinct dgrads or wgrads of a network's convolutions.

    Strict float32 has one form of the network, its own: no folded or padded first convolution. The
    gradient of the network's input is not wanted.
    """
    types = {"dtype": precision, "out_dtype": precision, "epilogue": Epilogue()}
    forward = [w for w in workloads(network, batch, "float32") if w.op == "fprop"]
    image = max(w.h for w in forward)
    wanted = [w for w in forward if op == "wgrad" or w.h < image]
    return list(dict.fromkeys(dataclasses.replace(w, op=op, **types) for w in wanted))


def training(network: str, batch: int, precision: str) -> list[Workload]:
    step = TRAINED[network](batch).step(Sgd(momentum=0.9))
    return workloads_of(step.module, precision=precision, device=Device())


def stems() -> list[Workload]:
    """Whole stems of :data:`STEMS` in 16 bits."""
    found = []
    for size, k, taps, stride, pad, pool, activation in STEMS:
        window, step, before = pool or (0, 1, 0)
        for dtype, batches in STEM_BATCHES.items():
            stem = Stem(3, False, dtype, (window,) * 2, (step,) * 2, (before, before, 0, 0))
            epilogue = Epilogue(bias=True, activation=activation)
            found += [
                Workload(
                    "stem", n, size, size, 4, k, taps, taps, (stride,) * 2, (pad,) * 4,
                    epilogue=epilogue, stem=stem,
                )
                for n in batches
            ]  # fmt: skip
    return found


def _of_torchvision(names: Sequence[str], op: str) -> list[Workload]:
    """The distinct workloads of an operator in networks of torchvision, in float16."""
    import torch
    import torchvision

    from convoy.normalize.normal_form import normalize
    from convoy.partition.subgraphs import find_subgraphs
    from convoy.pytorch.importer import to_relax, trace
    from convoy.pytorch.structure import flatten

    found: dict[Workload, None] = {}
    for name in names:
        network = torchvision.models.get_model(name).eval()
        inputs, structure = flatten(((torch.randn(1, 3, 224, 224),), {}))
        module = normalize(to_relax(trace(network, structure, inputs).program), dtype="float16")
        every = (subgraph.require_workload() for subgraph in find_subgraphs(module))
        found.update(dict.fromkeys(w for w in every if w.op == op))
    return list(found)


def inverted_residuals() -> list[Workload]:
    """1x1 convolutions with the depthwise ones behind them of :data:`INVERTED` in float16."""
    found = _of_torchvision(INVERTED, "expand_depthwise")
    return [dataclasses.replace(w, n=n) for n in INVERTED_BATCHES for w in found]


def squeeze_excites() -> list[Workload]:
    """Squeeze-and-excitation blocks of :data:`SQUEEZED` in float16, and those of SE-ResNet-50
    without and with the residual and ReLU behind them."""
    found = _of_torchvision(SQUEEZED, "squeeze_excite")
    relu, sigmoid = (Epilogue(bias=True, activation=name) for name in ("relu", "sigmoid"))
    for size, c, squeezed in SE_RESNET:
        own = SqueezeExcite(squeezed, relu, sigmoid)
        block = Workload("squeeze_excite", 1, size, size, c, c, 1, 1, squeeze_excite=own)
        added = Epilogue(residual=True, activation="relu")
        found += [block, dataclasses.replace(block, epilogue=added)]
    distinct = dict.fromkeys(w for w in found if not any(squeeze_excite.objections(w)))
    return [dataclasses.replace(w, n=n) for n in SQUEEZED_BATCHES for w in distinct]


def bottlenecks() -> list[Workload]:
    """Bottlenecks with biases, ReLU and a residual in float16, and those of ResNets without one as
    well; as far as there is a kernel for them."""
    sizes = [(n, size) for size, batches in BOTTLENECK_SIZES.items() for n in batches]
    others = [(n, size) for size in OTHER_SIZES for n in OTHER_BATCHES]
    found = [_bottleneck(*one, *channels) for one in sizes for channels in BOTTLENECKS]
    found += [_bottleneck(*one, *channels) for one in others for channels in OTHER_BOTTLENECKS]
    wide = [(n, size) for size, batches in WIDE_SIZES.items() for n in batches]
    found += [_bottleneck(*one, *channels) for one in wide for channels in WIDE_BOTTLENECKS]
    resnets = [one for one in sizes if one[1] == (56, 56)]
    found += [_bottleneck(*one, *channels, False) for one in resnets for channels in BOTTLENECKS]
    return [w for w in found if not any(bottleneck.objections(w))]


def _bottleneck(
    n: int, size: tuple[int, int], k: int, expand: int, reduce: int, residual: bool = True
) -> Workload:
    relu = Epilogue(bias=True, activation="relu")
    added = dataclasses.replace(relu, residual=residual)
    own = Bottleneck(expand, added, reduce, relu if reduce else NO_EPILOGUE)
    padding = (1, 1, 1, 1)
    return Workload(
        "bottleneck", n, *size, k, k, 3, 3, (1, 1), padding, epilogue=relu, bottleneck=own
    )  # fmt: skip


#: Lists of one operator for all networks.
SHARED = {
    "stem": ("stems", stems),
    "expand_depthwise": ("inverted-residuals", inverted_residuals),
    "bottleneck": ("bottlenecks", bottlenecks),
    "squeeze_excite": ("squeeze-excite", squeeze_excites),
}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = made.add_argument
    add("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all")
    add("--batches", nargs="+", type=int, default=BATCHES)
    add("--op", choices=("fprop", "dgrad", "wgrad", "training", *SHARED), default="fprop")
    add("--precision", default="float16")
    add("--out", type=Path, default=Path(__file__).parent / "workloads")
    return made


def main() -> None:
    options = parser().parse_args()
    if options.op in SHARED:
        if options.networks:
            name = options.networks[0]
            parser().error(f"{name} with --op {options.op}: one list for all networks")
        name, make = SHARED[options.op]
        path = options.out / f"{name}-fprop-float16.jsonl"
        print(f"{path}: {write(path, make())} workloads")
        return
    if unknown := set(options.networks) - NETWORKS.keys():
        parser().error(f"network {min(unknown)}: not one of {', '.join(NETWORKS)}")
    known = TRAINED if options.op == "training" else NETWORKS
    for network in options.networks or known:
        if network not in known:
            parser().error(f"no training step of {network}: those of {', '.join(known)}")
        found = []
        for batch in options.batches:
            if options.op == "training":
                found += training(network, batch, options.precision)
            elif options.op == "fprop":
                found += workloads(network, batch, options.precision)
            else:
                found += gradients(network, batch, options.precision, options.op)
        path = options.out / f"{network}-{options.op}-{options.precision}.jsonl"
        print(f"{path}: {write(path, found)} workloads")


if __name__ == "__main__":
    main()

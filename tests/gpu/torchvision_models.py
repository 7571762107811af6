"""torch.compile(backend="convoy") on torchvision's models, a row for each.

    python tests/gpu/torchvision_models.py --device cuda --dtype float16
    python tests/gpu/torchvision_models.py --device cpu resnet18 vit_b_32

Columns: the part of convolutions and matrix products in compiled subgraphs, graph breaks, the
largest difference to PyTorch in float32 relative to the largest value, for Convoy and for PyTorch
in the same dtype, seconds of the first call, and why subgraphs run eagerly. Weights are random.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torchvision import models

import convoy.pytorch.dynamo as dynamo
from convoy.report import tables

CLASSIFIERS = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_b1 efficientnet_v2_s
googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet1_0 mobilenet_v2 mobilenet_v3_small
mobilenet_v3_large regnet_x_400mf regnet_x_1_6gf regnet_y_400mf regnet_y_1_6gf resnet18 resnet34
resnet50 resnet101 resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0 squeezenet1_1
swin_t swin_v2_t vgg11 vgg11_bn vgg16 vit_b_16 vit_b_32 wide_resnet50_2"""
OTHERS = """segmentation.deeplabv3_mobilenet_v3_large segmentation.deeplabv3_resnet50
segmentation.fcn_resnet50 segmentation.lraspp_mobilenet_v3_large video.r3d_18 video.mc3_18
video.r2plus1d_18 detection.retinanet_resnet50_fpn detection.fasterrcnn_mobilenet_v3_large_320_fpn
detection.ssdlite320_mobilenet_v3_large optical_flow.raft_small"""
MODELS = [*CLASSIFIERS.split(), *OTHERS.split()]


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A model with random weights and statistics, and example inputs."""
    torch.manual_seed(0)
    family, _, short = name.rpartition(".")
    options: dict[str, Any] = {}
    if family in ("segmentation", "detection"):
        options = {"weights": None, "weights_backbone": None}
    if name in ("googlenet", "inception_v3"):
        options = {"init_weights": True}
    net = getattr(getattr(models, family) if family else models, short)(**options).eval()
    for parameter in net.parameters():
        if not parameter.any():  # heads that begin at zero hide everything before them
            torch.nn.init.normal_(parameter, std=0.02)
    inputs = example(name, family)
    adapt_norms(net, inputs)
    return net, inputs


def example(name: str, family: str) -> tuple[Any, ...]:
    """Inputs of a useful size."""
    if family == "detection":
        return ([torch.rand(3, 320, 320), torch.rand(3, 320, 320)],)
    if family == "video":
        return (torch.randn(1, 3, 8, 112, 112),)
    if family == "optical_flow":
        return torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)
    size = 299 if name == "inception_v3" else 224
    return (torch.randn(2, 3, size, size),)


@torch.no_grad()
def adapt_norms(net: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
    """Give batch norms the statistics of the inputs: others let float16 overflow."""
    norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    if norms:
        net(*inputs)
    net.eval()


def error(got: Any, want: Any) -> float:
    """The largest over all tensors; infinity where shapes differ, as they may for detections, and
    where anything is not finite."""
    worst = 0.0
    for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
        if not isinstance(b, torch.Tensor):
            continue
        if a.shape != b.shape or not (a.isfinite().all() and b.isfinite().all()):
            return float("inf")
        scale = float(b.double().abs().max()) if b.numel() else 0.0
        worst = max(worst, float((a.double() - b.double()).abs().max()) / scale if scale else 0.0)
    return worst


@torch.no_grad()
def row(name: str, device: str, dtype: torch.dtype, measure: bool | None) -> tuple[str, ...]:
    net, inputs = make(name)

    def cast(value: Any) -> Any:
        return pytree.tree_map(lambda t: t.to(device, dtype), value)

    reference = net.to(device)(*pytree.tree_map(lambda t: t.to(device), inputs))
    net, inputs = net.to(dtype), cast(inputs)
    eager = net(*inputs)
    torch._dynamo.reset()
    last = max((s.number for s in dynamo.subgraphs()), default=0)
    start = time.perf_counter()
    options = {} if measure is None else {"measure": measure}
    got = torch.compile(net, backend="convoy", dynamic=False, options=options)(*inputs)
    seconds = time.perf_counter() - start
    made = [s for s in dynamo.subgraphs() if s.number > last]
    heavy = sum(s.heavy for s in made)
    covered = sum(s.heavy for s in made if not s.reason)
    reasons = {s.reason.splitlines()[0][:100] for s in made if s.reason and s.heavy}
    return (
        name, f"{covered}/{heavy}", str(len(made) - 1), f"{error(got, reference):.1e}",
        f"{error(eager, reference):.1e}", f"{seconds:.0f}", "; ".join(sorted(reasons)),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--no-measure", action="store_true", help="kernels by records alone")
    args = parser.parse_args()
    measure = False if args.no_measure else None
    columns = ("model", "compiled", "breaks", "error", "PyTorch's", "seconds", "eager because")
    rows = []
    for name in args.models:
        try:
            rows.append(row(name, args.device, getattr(torch, args.dtype), measure))
        except Exception as err:  # one model must not end the table
            reason = str(err).splitlines()[0][:100] if str(err) else ""
            rows.append((name, "failed", "", "", "", "", f"{type(err).__name__}: {reason}"))
        print("\t".join(rows[-1]), file=sys.stderr, flush=True)
    print(tables.markdown(columns, rows))


if __name__ == "__main__":
    main()

"""PyTorch in half precision and channels-last: eager under a CUDA graph, and torch.compile."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from .timing import Run, Timing, measure


class PreactBottleneck(nn.Module):
    """The bottleneck of ResNet v2: batch norm and relu come before each convolution."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out, inner = width * 4, width
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, inner, 1, stride, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, 1, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
        self.shortcut = None
        if stride != 1 or channels != out:
            self.shortcut = nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pre = torch.relu(self.bn1(x))
        skip = x if self.shortcut is None else self.shortcut(pre)
        y = self.conv1(pre)
        y = self.conv2(torch.relu(self.bn2(y)))
        return self.conv3(torch.relu(self.bn3(y))) + skip


class ResNet50V2(nn.Module):
    """The ResNet-50 of Relay's model collection: pre-activation, stride on the first 1x1."""

    def __init__(self) -> None:
        super().__init__()
        self.bn_data = nn.BatchNorm2d(3)
        self.conv0 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn0 = nn.BatchNorm2d(64)
        blocks: list[nn.Module] = []
        channels = 64
        for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for unit in range(depth):
                stride = 2 if stage and not unit else 1
                blocks.append(PreactBottleneck(channels, width, stride))
                channels = width * 4
        self.blocks = nn.Sequential(*blocks)
        self.bn1 = nn.BatchNorm2d(channels)
        self.fc = nn.Linear(channels, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn0(self.conv0(self.bn_data(x))))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = torch.relu(self.bn1(self.blocks(x)))
        y = self.fc(x.mean((2, 3)))
        return torch.softmax(y if y.dtype == torch.float64 else y.float(), -1)


def resnet50_v2_from(params: Mapping[str, np.ndarray], dtype: torch.dtype) -> ResNet50V2:
    """The network with the parameters of Relay's ResNet-50 (OIHW weights), on the GPU."""
    model = ResNet50V2().eval()

    def norm(layer: nn.BatchNorm2d, name: str) -> None:
        layer.eps = 2e-5
        for ours, theirs in (
            (layer.weight, "gamma"),
            (layer.bias, "beta"),
            (layer.running_mean, "moving_mean"),
            (layer.running_var, "moving_var"),
        ):
            ours.data.copy_(torch.from_numpy(params[f"{name}_{theirs}"]))

    def filt(layer: nn.Module, name: str) -> None:
        layer.weight.data.copy_(torch.from_numpy(params[name]))

    norm(model.bn_data, "bn_data")
    model.bn_data.weight.data.fill_(1.0)  # Relay's first batch norm has scale=False
    filt(model.conv0, "conv0_weight")
    norm(model.bn0, "bn0")
    names = [f"stage{s + 1}_unit{u + 1}" for s, n in enumerate((3, 4, 6, 3)) for u in range(n)]
    for block, name in zip(model.blocks, names, strict=True):
        for i in (1, 2, 3):
            norm(getattr(block, f"bn{i}"), f"{name}_bn{i}")
            filt(getattr(block, f"conv{i}"), f"{name}_conv{i}_weight")
        if block.shortcut is not None:
            filt(block.shortcut, f"{name}_sc_weight")
    norm(model.bn1, "bn1")
    filt(model.fc, "fc1_weight")
    model.fc.bias.data.copy_(torch.from_numpy(params["fc1_bias"]))
    return model.to("cuda", dtype)


def network(name: str) -> nn.Module:
    """A network in evaluation mode, half precision, channels-last, random weights."""
    if name == "resnet50_v2":
        model: nn.Module = ResNet50V2()
    else:
        import torchvision

        options = {"aux_logits": False} if name in ("inception_v3", "googlenet") else {}
        model = getattr(torchvision.models, name)(weights=None, **options)
    return model.eval().half().cuda().to(memory_format=torch.channels_last)


def example(name: str, batch: int) -> torch.Tensor:
    size = 299 if name == "inception_v3" else 224
    x = torch.randn(batch, 3, size, size, device="cuda", dtype=torch.half)
    return x.to(memory_format=torch.channels_last)


def folded(model: nn.Module) -> tuple[nn.Module, bool]:
    """A copy with batch norms folded into convolutions, and whether that could be done: not where
    ``torch.fx`` cannot trace the module, and not for subclasses of PyTorch's layers."""
    from torch.fx.experimental.optimization import fuse

    norms = nn.modules.batchnorm._BatchNorm
    try:
        found = fuse(model)
    except Exception:  # of any code in the module that a proxy does not pass
        found = copy.deepcopy(model)
    return found, not any(isinstance(m, norms) for m in found.modules())


def captured(model: Callable[[torch.Tensor], Any], x: torch.Tensor) -> tuple[Run, Any]:
    """Capture eager kernels in one CUDA graph: a run replays it, and keeps alive what it reads
    and the result, which it overwrites. On a CPU, a run is a call. To be called without gradients.
    """
    torch.backends.cudnn.benchmark = True
    if not x.is_cuda:
        return Run(lambda: model(x), lambda: None), model(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    graph.replay()

    def replay(_kept: Any = (model, x, y)) -> None:
        graph.replay()

    return Run(replay, torch.cuda.synchronize), y


def frozen(model: nn.Module, mode: str) -> Callable[[torch.Tensor], Any]:
    """``torch.compile`` with frozen weights; it compiles at the first call, without gradients."""
    os.environ.setdefault("TORCHINDUCTOR_FREEZING", "1")
    import torch._inductor.config as inductor

    inductor.freezing = True
    compiled: Callable[[torch.Tensor], Any] = torch.compile(model, mode=mode)
    return compiled


def eager_under_graph(name: str, batch: int) -> Timing:
    """Time eager kernels captured in one CUDA graph; a replay is one inference."""
    with torch.no_grad():
        run, _ = captured(network(name), example(name, batch))
        return measure(run)


def compiled(name: str, batch: int, before: Callable[[], None] = lambda: None) -> Timing:
    """Time torch.compile with weight freezing and CUDA graphs ("reduce-overhead"); ``before`` is
    called when everything is compiled and nothing timed yet."""
    torch._dynamo.reset()
    run, x = frozen(network(name), "reduce-overhead"), example(name, batch)
    with torch.no_grad():
        for _ in range(4):
            run(x)
        before()
        return measure(Run(lambda: run(x), torch.cuda.synchronize))

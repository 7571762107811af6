"""PyTorch's training step of ResNet-50: half precision or mixed, eager under a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from .timing import Timing, measure


class Bottleneck(nn.Module):
    """ResNet v1.5: the stride is in the 3x3 convolution."""

    def __init__(self, channels: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.down = None
        if project:
            conv = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.down = nn.Sequential(conv, nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(y)))))
        return self.relu(y + (x if self.down is None else self.down(x)))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks: list[nn.Module] = []
        channels = 64
        for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for unit in range(depth):
                stride = 2 if stage and not unit else 1
                blocks.append(Bottleneck(channels, width, stride, not unit))
                channels = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(channels, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu_(self.bn(self.conv(x)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))

    def load(self, values: Mapping[str, np.ndarray]) -> None:
        """Take over the parameters of ``convoy.training.resnet50`` (OHWI filters, by name)."""
        pairs: list[tuple[str, nn.Module, nn.Module]] = [("stem", self.conv, self.bn)]
        depths = (3, 4, 6, 3)
        names = [f"stage{s + 1}_{b}" for s, depth in enumerate(depths) for b in range(depth)]
        for name, block in zip(names, self.blocks, strict=True):
            for part, i in (("a", 1), ("b", 2), ("c", 3)):
                pairs.append(
                    (f"{name}_{part}", getattr(block, f"conv{i}"), getattr(block, f"bn{i}"))
                )
            if block.down is not None:
                pairs.append((f"{name}_shortcut", *block.down))
        with torch.no_grad():
            for name, conv, norm in pairs:
                filters = values[f"{name}_weight"].transpose(0, 3, 1, 2)
                conv.weight.copy_(torch.from_numpy(np.ascontiguousarray(filters)))
                for theirs, ours in (
                    (norm.weight, "gamma"), (norm.bias, "beta"),
                    (norm.running_mean, "mean"), (norm.running_var, "var"),
                ):  # fmt: skip
                    theirs.copy_(torch.from_numpy(values[f"{name}_norm_{ours}"]))
            self.fc.weight.copy_(torch.from_numpy(values["classifier_weight"]))
            self.fc.bias.copy_(torch.from_numpy(values["classifier_bias"]))


class Step:
    """Forward, backward and SGD with momentum in channels-last.

    ``kind``: "half" (weights and statistics in half precision too), "amp" (float32 weights,
    autocast) or "float32".
    """

    def __init__(
        self, kind: str, x: np.ndarray, labels: np.ndarray, values: Mapping[str, np.ndarray],
        rate: float, weight_decay: float = 0.0,
    ) -> None:  # fmt: skip
        torch.backends.cudnn.benchmark = kind != "float32"
        torch.backends.cudnn.allow_tf32 = kind != "float32"  # that one is the reference
        self.kind, model = kind, ResNet50()
        model.load(values)
        model = model.cuda().to(memory_format=torch.channels_last)
        self.model = model.half() if kind == "half" else model
        dtype = torch.half if kind == "half" else torch.float32
        images = torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
        self.x = images.to(dtype).cuda().to(memory_format=torch.channels_last)
        self.labels = torch.from_numpy(labels).long().cuda()
        weights = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.SGD(
            [{"params": weights, "weight_decay": weight_decay}, {"params": others}],
            lr=rate, momentum=0.9,
        )  # fmt: skip
        self.loss = torch.zeros((), device="cuda")

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16, enabled=self.kind == "amp"):
            logits = self.model(self.x)
        loss = nn.functional.cross_entropy(logits.float(), self.labels)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def captured(self) -> Callable[[], None]:
        """The step as a CUDA graph, after the warm-up that capture needs (which are steps too)."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                self()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self()
        return graph.replay


def time_step(step: Step, seconds: float = 1.0) -> Timing:
    """The captured step by the protocol of all systems."""
    return measure(step.captured(), torch.cuda.synchronize, seconds)

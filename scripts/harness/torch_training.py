"""PyTorch's training step of ResNet-50: half precision or mixed, eager under a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import nn

from .timing import Run, Timing, measure


def network(values: Mapping[str, np.ndarray]) -> nn.Module:
    """torchvision's ResNet-50 (v1.5) with the parameters of ``convoy.training.resnet50`` (OHWI
    filters, by name)."""
    import torchvision

    model = torchvision.models.resnet50(weights=None)
    pairs: list[tuple[str, nn.Module, nn.Module]] = [("stem", model.conv1, model.bn1)]
    for stage in range(4):
        for i, block in enumerate(getattr(model, f"layer{stage + 1}")):
            name = f"stage{stage + 1}_{i}"
            for part, number in (("a", 1), ("b", 2), ("c", 3)):
                conv, norm = getattr(block, f"conv{number}"), getattr(block, f"bn{number}")
                pairs.append((f"{name}_{part}", conv, norm))
            if block.downsample is not None:
                pairs.append((f"{name}_shortcut", *block.downsample))
    with torch.no_grad():
        for name, conv, norm in pairs:
            filters = values[f"{name}_weight"].transpose(0, 3, 1, 2)
            conv.weight.copy_(torch.from_numpy(np.ascontiguousarray(filters)))
            for theirs, ours in (
                (norm.weight, "gamma"), (norm.bias, "beta"),
                (norm.running_mean, "mean"), (norm.running_var, "var"),
            ):  # fmt: skip
                theirs.copy_(torch.from_numpy(values[f"{name}_norm_{ours}"]))
        model.fc.weight.copy_(torch.from_numpy(values["classifier_weight"]))
        model.fc.bias.copy_(torch.from_numpy(values["classifier_bias"]))
    return model


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
        self.kind = kind
        model = network(values).cuda().to(memory_format=torch.channels_last)
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
    """Time the captured step by the protocol of all systems."""
    return measure(Run(step.captured(), torch.cuda.synchronize), seconds)

"""PyTorch models by name: torchvision's, timm's and a few of our own, with random weights.

A name is ``torchvision.NAME`` (classification, segmentation, video), ``timm.NAME`` or ``own.NAME``,
each with ``@SIZE`` for inputs of another size than the model's own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import own_models

#: What ``--models families`` stands for: one of each family of torchvision's classifiers,
#: segmentation and detectors' backbones, a U-Net, a detector, a network of waveforms.
FAMILIES = (
    *("torchvision.alexnet", "torchvision.convnext_tiny", "torchvision.densenet121"),
    *("torchvision.efficientnet_b0", "torchvision.efficientnet_v2_s@224", "torchvision.googlenet"),
    *("torchvision.inception_v3", "torchvision.maxvit_t", "torchvision.mnasnet1_0"),
    *("torchvision.mobilenet_v2", "torchvision.mobilenet_v3_large", "torchvision.regnet_y_3_2gf"),
    *("torchvision.resnet50", "torchvision.resnext50_32x4d", "torchvision.shufflenet_v2_x1_0"),
    *("torchvision.squeezenet1_1", "torchvision.swin_t", "torchvision.vgg16"),
    *("torchvision.vit_b_16", "torchvision.wide_resnet50_2"),
    *("torchvision.deeplabv3_resnet50@512", "torchvision.fcn_resnet50@512"),
    *("torchvision.lraspp_mobilenet_v3_large@512", "own.fpn@512", "own.unet@256"),
    *("own.yolo@640", "own.audio@16000"),
)
#: Images, at most, whose statistics the batch norms get.
_SETTLING = 8
#: Of a video.
_FRAMES = 16


@dataclass(frozen=True)
class Name:
    """A model's name, taken apart; ``size`` is 0 where it is the model's own."""

    source: str
    short: str
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Name:
        """Raises ValueError for what cannot name a model."""
        path, at, size = text.partition("@")
        source, _, short = path.partition(".")
        if source not in _SOURCES or not short or (at and not (size.isdecimal() and int(size))):
            known = ", ".join(f"{name}.NAME" for name in _SOURCES)
            raise ValueError(f"model {text!r}; expected one of {known}, with or without @SIZE")
        return cls(source, short, int(size or 0))


def make(text: str, device: str = "cpu") -> tuple[nn.Module, tuple[int, ...]]:
    """A model in evaluation mode and float32, and the shape of an input without its batch.

    The weights are the same on every device. Raises ValueError for an unknown name.
    """
    name = Name.parse(text)
    torch.manual_seed(0)
    model, shape = _SOURCES[name.source](name)
    return settled(model.to(device), shape), shape


@torch.no_grad()
def settled(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Let random weights give activations that neither vanish nor explode, so that float16 can
    hold them: batch norms get the statistics of random images, and layers and branches that begin
    at zero, or at scales near zero, do not hide what is before them. The images go through a copy:
    what a model caches for its first call, it caches in that precision."""
    for parameter in model.parameters():
        largest = parameter.abs().max() if parameter.numel() else 0.0
        if (parameter.dim() > 1 and not largest) or 0 < largest < 1e-4:
            nn.init.trunc_normal_(parameter, std=0.02)
    trial = copy.deepcopy(model.eval())
    norms = [m for m in trial.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        if norm.weight is not None and not norm.weight.any():
            nn.init.ones_(norm.weight)
        norm.reset_running_stats()
        norm.momentum = None  # the mean over calls, of which there is one
        norm.train()
    if norms:
        device = next(trial.parameters()).device
        trial(torch.randn(_SETTLING, *shape).to(device))
        model.load_state_dict(trial.state_dict())
    return model


class Output(nn.Module):
    """One of the results of a network that returns a dictionary."""

    def __init__(self, network: nn.Module, key: str) -> None:
        super().__init__()
        self.network, self.key = network, key

    def forward(self, x: torch.Tensor) -> Any:
        return self.network(x)[self.key]


def _torchvision(name: Name) -> tuple[nn.Module, tuple[int, ...]]:
    from torchvision import models

    if name.short not in models.list_models():
        raise ValueError(f"torchvision has no model {name.short!r}")
    weights = models.get_model_weights(name.short)
    transforms = next(iter(weights)).transforms()
    if hasattr(weights, "DEFAULT"):
        transforms = weights.DEFAULT.transforms()
    own, *_ = getattr(transforms, "crop_size", None) or transforms.resize_size
    size, segments = name.size or own, name.short in models.list_models(models.segmentation)
    options: dict[str, Any] = {}
    if segments:
        options = {"weights_backbone": None}
    elif name.short in ("inception_v3", "googlenet"):
        options = {"aux_logits": False, "init_weights": True}
    elif name.short.startswith("vit_"):
        options = {"image_size": size}
    elif name.short.startswith("maxvit"):
        options = {"input_size": (size, size)}
    model: nn.Module = models.get_model(name.short, weights=None, **options)
    frames = (_FRAMES,) if name.short in models.list_models(models.video) else ()
    return Output(model, "out") if segments else model, (3, *frames, size, size)


def _timm(name: Name) -> tuple[nn.Module, tuple[int, ...]]:
    import timm

    if not timm.is_model(name.short):
        raise ValueError(f"timm has no model {name.short!r}")
    config = timm.get_pretrained_cfg(name.short)
    channels, *size = config.input_size
    options: dict[str, Any] = {}
    if name.size:
        size = [name.size, name.size]
        options = {"img_size": name.size} if config.fixed_input_size else {}
    model: nn.Module = timm.create_model(name.short, pretrained=False, **options)
    return model, (channels, *size)


def _own(name: Name) -> tuple[nn.Module, tuple[int, ...]]:
    if name.short not in own_models.MODELS:
        raise ValueError(f"model own.{name.short}; expected one of {', '.join(own_models.MODELS)}")
    make_own, dimensions, size = own_models.MODELS[name.short]
    channels = 3 if dimensions == 2 else 1
    return make_own(), (channels, *[name.size or size] * dimensions)


_SOURCES: dict[str, Callable[[Name], tuple[nn.Module, tuple[int, ...]]]] = {
    "torchvision": _torchvision, "timm": _timm, "own": _own,
}  # fmt: skip

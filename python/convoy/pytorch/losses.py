"""Cross entropy of class probabilities and with label smoothing, and margins of several labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def _cross_entropy(
    logits: Any, targets: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Of class indices alone it is converted as a whole. Smoothing by s is 1 - s times that, and
    s times the mean over classes."""
    axis = min(1, logits.dim() - 1)
    classes = logits.shape[axis]
    if targets.is_floating_point():
        targets = targets * (1 - label_smoothing) + label_smoothing / classes
        loss = _weighted(logits, targets, weight, axis)
        return _reduced(loss, reduction, loss.numel())
    if not label_smoothing:
        return NotImplemented
    plain = _aten.cross_entropy_loss.default(logits, targets, weight, reduction, ignore_index)
    counted = targets != ignore_index
    every = torch.where(counted, _weighted(logits, torch.ones_like(logits), weight, axis), 0)
    shares = counted.to(logits.dtype)
    if weight is not None:
        shares = shares * weight[torch.where(counted, targets, 0)]
    smooth = _reduced(every, reduction, shares.sum())
    return (1 - label_smoothing) * plain + label_smoothing / classes * smooth


def _weighted(logits: Any, targets: Any, weight: Any, axis: int) -> Any:
    """The sum over classes of targets times weights times negative log probabilities."""
    losses = -torch.log_softmax(logits, axis) * targets
    if weight is not None:
        losses = losses * weight.reshape([-1, *[1] * (logits.dim() - 1 - axis)])
    return losses.sum(axis)


def _reduced(losses: Any, reduction: int, count: Any) -> Any:
    """All (0), their sum over a count (1), or their sum (2)."""
    return losses if reduction == 0 else losses.sum() / (count if reduction == 1 else 1)


def _multilabel_margin(input: Any, target: Any, reduction: int) -> tuple[Any, Any]:
    """By the labels before the first -1, and whether each class is among them. PyTorch's own
    decomposition also counts the margins of what follows."""
    scores, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    count = scores.shape[1]
    given = (labels == -1).cumsum(1) == 0
    classes = torch.arange(count, device=labels.device)
    is_target = ((labels.unsqueeze(2) == classes) & given.unsqueeze(2)).any(1)
    own = scores.gather(1, torch.where(given, labels, 0))
    margins = (1 - own.unsqueeze(2) + scores.unsqueeze(1)).clamp(min=0)
    counted = given.unsqueeze(2) & ~is_target.unsqueeze(1)
    losses = torch.where(counted, margins, 0).sum((1, 2)) / count
    result = _reduced(losses, reduction, len(losses))
    if not reduction and input.dim() < 2:
        result = result.reshape(())
    return result, is_target.to(input.dtype).reshape(target.shape)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.cross_entropy_loss.default: _cross_entropy,
    _aten.multilabel_margin_loss_forward.default: _multilabel_margin,
}

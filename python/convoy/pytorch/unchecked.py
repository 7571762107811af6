"""Functions that read values only to check them, or in C++ without PyTorch's dispatcher, as
computations alone; autocast as a context of the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..errors import UnsupportedOp


class Unchecked(TorchFunctionMode):
    """A mode to trace in, with what :data:`_FUNCTIONS` has in the place of functions."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return _FUNCTIONS.get(function, function)(*args, **(kwargs or {}))


def _gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    elif var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _cov(input: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """The covariance of variables, which are rows, or of one variable."""
    x = input if input.dim() == 2 else input.reshape(1, -1)
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    weights = fweights if aweights is None else aweights
    if fweights is not None and aweights is not None:
        weights = fweights * aweights
    if weights is None:
        centered = x - x.mean(1, keepdim=True)
        return (centered @ centered.mT / max(x.shape[1] - correction, 0)).squeeze()
    total = weights.sum()
    centered = x - ((x * weights).sum(1) / total).unsqueeze(1)
    less = correction if aweights is None else correction * (weights * aweights).sum() / total
    return ((centered * weights) @ centered.mT / (total - less).clamp(min=0)).squeeze()


def _corrcoef(input: Any) -> Any:
    covariance = _cov(input)
    if not covariance.dim():
        return covariance / covariance
    deviations = covariance.diagonal().sqrt()
    return (covariance / deviations[:, None] / deviations).clamp(-1, 1)


def _enter_autocast(*options: Any) -> Any:
    """Enter a context of autocast, as graphs of Dynamo call it; a trace without it has other dtypes
    than what it is converted to."""
    context = torch.autocast(*options)
    context.__enter__()
    return context


def _exit_autocast(context: Any) -> None:
    context.__exit__(None, None, None)


def _set_data(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """``tensor.data = value``, which a trace does not see, as a write to the tensor."""
    if tensor.shape != value.shape or tensor.dtype != value.dtype:
        raise UnsupportedOp(
            f"tensor.data = ... of {value.dtype} {tuple(value.shape)} in the place of "
            f"{tensor.dtype} {tuple(tensor.shape)}",
            "data of the same dtype and shape",
            "Compute with the other tensor itself.",
        )
    tensor.detach().copy_(value.detach())


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.data.__get__: torch.Tensor.detach,  # a trace does not know where data is from
    torch.Tensor.data.__set__: _set_data,
    torch.amp.autocast_mode._enter_autocast: _enter_autocast,
    torch.amp.autocast_mode._exit_autocast: _exit_autocast,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    **dict.fromkeys((torch.cov, torch.Tensor.cov), _cov),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), _corrcoef),
}

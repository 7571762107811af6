"""Errors about tensors that are more, or less, than elements in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.autograd import forward_ad

from ..errors import InvalidOption


def is_traced() -> bool:
    """Whether calls are recorded in a way that does not see what a compiled module does: in
    forward-mode differentiation, as by ``torch.func.jvp``, and by ``torch.jit.trace``."""
    return forward_ad._current_level >= 0 or torch._C._get_tracing_state() is not None


def check_plain(tensors: Sequence[Any]) -> None:
    """Raise InvalidOption for an input of a transform or of a trace."""
    if torch._C._get_tracing_state() is not None:
        raise _traced("a compiled module in torch.jit.trace")
    for i, one in enumerate(tensors):
        if not isinstance(one, torch.Tensor):
            continue
        check_dense([(f"input {i}", one)])
        if torch._C._functorch.is_functorch_wrapped_tensor(one):
            raise InvalidOption(
                f"input {i} of a transform of torch.func",
                "a tensor with elements: a compiled module is not traced",
                "Compile the transformed function, such as torch.func.vmap(module).",
            )
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(one).tangent is not None:
            raise InvalidOption(
                f"input {i} with a tangent, of forward-mode differentiation",
                "inputs without: a compiled module has no derivatives",
                "forward_ad.unpack_dual(x).primal is the tensor without.",
            )
        if is_fake(one):
            raise _traced(f"input {i} without elements, of a trace")


def check_module(module: Callable[..., Any], tensors: Iterable[torch.Tensor]) -> None:
    """Raise InvalidOption for a sparse or nested tensor among the inputs and in the module."""
    named = [("", one) for one in tensors]
    if isinstance(module, torch.nn.Module):
        named += [*module.named_parameters(), *module.named_buffers()]
    check_dense(named)


def check_dense(named: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raise InvalidOption for a sparse or nested tensor."""
    for name, one in named:
        if one.layout != torch.strided or one.is_nested:
            kind = "nested tensor" if one.is_nested else f"tensor of {one.layout}"
            remedy = "tensor.to_padded_tensor(0)" if one.is_nested else "tensor.to_dense()"
            raise InvalidOption(f"a {kind}{name and f' ({name})'}", "dense tensors", remedy)


def _traced(got: str) -> InvalidOption:
    return InvalidOption(
        got,
        "the module that it was made from: a compiled module is not traced",
        "The attribute module has it.",
    )

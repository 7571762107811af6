"""Results in the memory that PyTorch has them in: views of inputs and of other results, strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram

from .runner import Tensors


@dataclass(frozen=True)
class Result:
    """Where a result is.

    Attributes:
        strides: Its strides.
        input: The input that it is a view of; -1 for none.
        base: The result that it is a view of; -1 for none.
        offset: Its distance, in elements, from the beginning of what it is a view of.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    input: int = -1
    base: int = -1
    offset: int = 0


def results_of(program: ExportedProgram) -> list[Result]:
    """The results of a program whose sizes are known."""
    values = {node.name: node.meta["val"] for node in program.graph.find_nodes(op="placeholder")}
    inputs = [values[name] for name in program.graph_signature.user_inputs]
    (output,) = program.graph.find_nodes(op="output")
    results = [node.meta["val"] for node in output.args[0]]
    whole = [_is_whole(one) for one in results]
    found = []
    for i, one in enumerate(results):
        view = Result(tuple(one.shape), tuple(one.stride()))
        if (at := _sharing(one, inputs, [True] * len(inputs))) >= 0:
            offset = one.storage_offset() - inputs[at].storage_offset()
            view = Result(view.shape, view.strides, input=at, offset=offset)
        elif not whole[i] and (at := _sharing(one, results, whole)) >= 0:
            view = Result(view.shape, view.strides, base=at, offset=one.storage_offset())
        elif whole[i] and (at := _sharing(one, results[:i], whole)) >= 0:
            view = Result(view.shape, view.strides, base=at)
        found.append(view)
    return found


def in_place(run: Callable[..., Tensors], results: Sequence[Result]) -> Callable[..., Tensors]:
    """Have a function on tensors give its results where PyTorch has them."""
    if all(_is_plain(one) for one in results):
        return run

    def placed(tensors: Tensors) -> Tensors:
        found = list(run(tensors))
        for i, one in enumerate(results):
            if one.input < 0 and one.base < 0 and not _is_plain(one):
                found[i] = _strided(found[i], one.strides)
        for i, one in enumerate(results):
            if one.input >= 0:
                base = tensors[one.input]
                offset = base.storage_offset() + one.offset
                found[i] = base.as_strided(one.shape, one.strides, offset)
            elif one.base >= 0:
                found[i] = found[one.base].as_strided(one.shape, one.strides, one.offset)
        return found

    return placed


def _sharing(value: torch.Tensor, others: Sequence[torch.Tensor], can: Sequence[bool]) -> int:
    """The first of ``others`` that ``value`` shares memory with, among those that can be a base."""
    storage = value.untyped_storage()._cdata
    for i, (other, possible) in enumerate(zip(others, can, strict=False)):
        same = other.untyped_storage()._cdata == storage and other.dtype == value.dtype
        if same and possible:
            return i
    return -1


def _is_whole(value: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    size = value.untyped_storage().nbytes()
    return value.numel() * value.element_size() == size and _is_dense(value.shape, value.stride())


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether each element has a place of its own, and there are none between them."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _is_plain(result: Result) -> bool:
    """Whether it is what a compiled function gives: compact, in memory of its own."""
    if result.input >= 0 or result.base >= 0:
        return False
    dense = _is_dense(result.shape, result.strides)
    inner_first = sorted(zip(result.strides, range(len(result.shape)), strict=True))
    axes = [axis for _, axis in inner_first if result.shape[axis] > 1]
    return not dense or axes == sorted(axes, reverse=True)


def _strided(value: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    return value.new_empty_strided(value.shape, strides).copy_(value)

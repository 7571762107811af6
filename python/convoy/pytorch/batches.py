"""Several batch sizes of one module: which one takes a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import InvalidOption
from ..ir.artifact import Meta
from .runner import Batched, Tensors

Run = Callable[..., Tensors]


def check_sizes(batch: Any) -> tuple[int, ...]:
    """One batch size or several in ascending order; raises InvalidOption for anything but positive
    integers."""
    sizes = batch if isinstance(batch, list | tuple | range) else [batch]
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise InvalidOption(f"batch={batch!r}", "positive integers, such as batch=[1, 8, 32]")
    return tuple(sorted(set(sizes)))


def batched_inputs(examples: Tensors) -> tuple[bool, ...]:
    """Which inputs have the batch as first dimension: those whose first dimension is the first
    input's. Raises InvalidOption where that has none."""
    if not examples or not examples[0].ndim:
        raise InvalidOption("batch sizes without an input of a batch", "a first input with one")
    return tuple(x.ndim > 0 and len(x) == len(examples[0]) for x in examples)


def with_batch(examples: Tensors, batched: Sequence[bool], size: int) -> Tensors:
    """Example inputs of another batch size."""
    return [
        x[:1].expand(size, *x.shape[1:]).contiguous() if of_batch else x
        for x, of_batch in zip(examples, batched, strict=True)
    ]


def batched_results(metas: Sequence[Meta], sizes: Sequence[int]) -> tuple[bool, ...]:
    """Which results have the batch as first dimension, at all sizes."""
    return tuple(
        all(info.shape[:1] == (size,) for info, size in zip(infos, sizes, strict=True))
        for infos in zip(*(meta.outputs for meta in metas), strict=True)
    )


class Batches:
    """Runs a call at the next batch size that was compiled. The first call that is padded is run
    with other paddings too, since a module may mix the rows of a batch.

    Args:
        runs: What runs each size, in ascending order.
    """

    def __init__(self, sizes: Sequence[int], runs: Sequence[Run], batched: Batched) -> None:
        self.sizes = tuple(sizes)
        #: By number of rows: the size, and what runs it.
        self._table: list[tuple[int, Run]] = []
        for size, run in zip(sizes, runs, strict=True):
            self._table += [(size, run)] * (size + 1 - len(self._table))
        self._whole = all(batched.results)
        self._inputs = batched.inputs
        #: Whether the first padded call has shown that no row depends on the others.
        self._apart = False

    def __call__(self, inputs: Tensors, rows: int) -> Tensors:
        if not 0 < rows < len(self._table):
            remedy = f"compile(..., batch={[*self.sizes, rows]}) takes it." if rows else ""
            raise InvalidOption(f"a batch of {rows}", f"1 to {self.sizes[-1]}", remedy)
        size, run = self._table[rows]
        if rows == size:
            return run(inputs)
        if not self._whole:
            raise InvalidOption(
                f"a batch of {rows} for a module with a result that is not a batch",
                f"a batch of {' or '.join(map(str, self.sizes))}",
                "What is padded would count in that result.",
            )
        if not self._apart:
            self._check_apart(run, inputs, rows, size)
        return run(inputs, rows)

    def _check_apart(self, run: Run, inputs: Tensors, rows: int, size: int) -> None:
        """Pad a call in three ways; raises InvalidOption where that changes its rows."""
        zeros, *others = (
            [
                torch.cat([x, fill(x[:1]).expand(size - rows, *x.shape[1:])]) if of_batch else x
                for x, of_batch in zip(inputs, self._inputs, strict=True)
            ]
            for fill in (torch.zeros_like, _below, _above)
        )
        expected = run(zeros)
        for given in others:
            for one, other in zip(expected, run(given), strict=True):
                if not close(one[:rows], other[:rows]):
                    raise InvalidOption(
                        f"a batch of {rows} for a module that mixes the rows of a batch",
                        f"a batch of {' or '.join(map(str, self.sizes))}",
                        "Rows that are padded would count in its results.",
                    )
        self._apart = True


def _below(row: torch.Tensor) -> torch.Tensor:
    """Other values than in a row and than zero; integers may be indices and stay."""
    return -4 * row.abs() - 1 if row.is_floating_point() else row


def _above(row: torch.Tensor) -> torch.Tensor:
    return 4 * row.abs() + 1 if row.is_floating_point() else row


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal but for rounding: sums of a GPU may come in another order."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = one.nan_to_num(0, 0, 0).abs().amax().item() if one.numel() else 0.0
    bound = 8 * torch.finfo(one.dtype).eps * scale
    return torch.allclose(one, other, rtol=0, atol=bound, equal_nan=True)


def rows_of(
    inputs: Sequence[Any], expected: Sequence[tuple[Any, ...]], batched: Sequence[bool]
) -> int:
    """The batch size of a call, -1 where an input does not fit."""
    rows = len(inputs[0]) if isinstance(inputs[0], torch.Tensor) and inputs[0].ndim else -1
    for given, (shape, dtype, device), of_batch in zip(inputs, expected, batched, strict=True):
        if (
            not isinstance(given, torch.Tensor)
            or given.shape != ((rows, *shape[1:]) if of_batch else shape)
            or given.dtype != dtype
            or given.device != device
            or (given.requires_grad and torch.is_grad_enabled())
        ):
            return -1
    return rows

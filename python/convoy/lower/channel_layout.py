"""Decide which parts of concatenations are written in place, and which slices are read in place.

A part becomes a slice of the wide tensor if its kernel can write one and all that read the part can
read one: any kernel of TVM's, and the library functions that say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax

from ..graph.expr import dtype_of, is_tensor, op_name, relax_ops, shape_of
from ..tir.loads import itemsize
from .slice_uses import CALL, CONCAT, SLICE, Sliceable, Uses

#: Bytes by which rows and their beginnings are aligned, as vectors and tensor maps want them.
ALIGNMENT = 16
#: Operators that FuseOps does not fuse with a concatenation that they read or are read by.
_APART = relax_ops(
    """
    nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d
    nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d
    nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose matmul sum mean max min
    nn.softmax nn.log_softmax nn.layer_norm nn.group_norm nn.instance_norm nn.rms_norm
    """
)


@dataclass
class Run:
    """Neighbouring parts of a concatenation: one that is written in place, or parts that a kernel
    copies (or computes, where only the concatenation reads them)."""

    parts: list[relax.Var]
    copied: bool
    channels: int
    #: Bytes that a kernel moves which would not be there without the concatenation.
    moved: int = 0


class Layout:
    """The concatenations that are written in place (``joined``, with their parts) and the slices
    that are read in place (``cuts``, with their first channel).

    Args:
        uses: A network whose chosen subgraphs are calls.
        sliceable: What its external functions can do.
        moving_us: Time of a kernel that moves this many bytes. A concatenation stays as it is
            where the kernels that remain would take longer.
    """

    def __init__(self, uses: Uses, sliceable: Sliceable, moving_us: Callable[[int], float]) -> None:
        self._uses, self._values, self._readers = uses, uses.values, uses.readers
        self._sliceable, self._moving_us = sliceable, moving_us
        self.joined: dict[relax.Var, list[Run]] = {}
        self.cuts: dict[relax.Var, int] = {}
        #: Time of the kernels that copy parts and slices, in microseconds.
        self.copying_us = 0.0
        self._placed: set[relax.Var] = set()
        self._parts: dict[relax.Var, list[relax.Var]] = {}  # of the concatenations seen, in order
        for var, value in self._values.items():
            if op_name(value) == SLICE:
                self._consider_slice(var, value)
        for var, value in self._values.items():
            if op_name(value) == CONCAT:
                self._consider_concat(var, value)

    # -- slices ------------------------------------------------------------------------------------

    def _consider_slice(self, var: relax.Var, call: relax.Call) -> None:
        """Cut a slice out of the result of a function if other functions read it."""
        source, begin = call.args[0], _first_channel(call)
        if begin is None or op_name(self._values.get(source)) not in (CALL, CONCAT):
            return
        if not _has_vectors(dtype_of(var), begin, shape_of(var)[-1], shape_of(source)[-1]):
            return
        readers = self._readers.get(var, [])
        if not any(op_name(value) == CALL for _, value in readers):
            return
        if self._uses.can_be_read(var, self._sliceable):
            self.cuts[var] = begin
        else:
            self.copying_us += self._copy_us(var)

    # -- concatenations ----------------------------------------------------------------------------

    def _consider_concat(self, var: relax.Var, call: relax.Call) -> None:
        fields = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else []
        if len(fields) < 2 or not all(isinstance(f, relax.Var) and is_tensor(f) for f in fields):
            return
        rank = len(shape_of(var))
        if rank < 2 or int(call.attrs.axis) % rank != rank - 1:
            return
        self._parts[var] = fields
        if self._is_fused(var):
            return
        parts = self._with_whole_tensors(self._with_earlier(fields, var), var)
        runs, whole_us = self._runs(parts, var), self._copy_us(var)
        left_us = sum(self._moving_us(run.moved) for run in runs or () if run.moved)
        if runs is None or left_us >= whole_us:
            self.copying_us += whole_us
            return
        self.copying_us += left_us
        self.joined[var] = runs
        self._placed.update(run.parts[0] for run in runs if not run.copied)

    def _is_fused(self, var: relax.Var) -> bool:
        """Whether one kernel computes the concatenation and what alone reads it."""
        readers = self._readers.get(var, [])
        if len(readers) != 1 or readers[0][0] is None:
            return False
        return op_name(readers[0][1]) not in {CALL, CONCAT, *_APART}

    def _with_earlier(self, parts: list[relax.Var], var: relax.Var) -> list[relax.Var]:
        """Parts with the longest earlier concatenation of some of them in the place of those: it
        grows."""
        for earlier, known in reversed(self._parts.items()):
            size = len(known)
            if earlier is var or size >= len(parts) or earlier in self._placed:
                continue
            for start in range(len(parts) - size + 1):
                same = parts[start : start + size] == known
                if same and self._uses.can_be_read(earlier, self._sliceable, but=var):
                    return [*parts[:start], earlier, *parts[start + size :]]
        return parts

    def _with_whole_tensors(self, parts: list[relax.Var], var: relax.Var) -> list[relax.Var]:
        """Parts with a tensor in the place of the slices that it was divided into."""
        found: list[relax.Var] = []
        place = 0
        while place < len(parts):
            source, count = self._divided(parts[place:])
            if source is not None and self._is_free(source, var, parts):
                found.append(source)
                place += count
            else:
                found.append(parts[place])
                place += 1
        return found

    def _divided(self, parts: Sequence[relax.Var]) -> tuple[relax.Var | None, int]:
        """The tensor that the first of these parts are all slices of, in order, and their
        number."""
        source, end = None, 0
        for count, part in enumerate(parts, 1):
            call = self._values.get(part)
            if not isinstance(call, relax.Call) or op_name(call) != SLICE:
                break
            if (source is not None and call.args[0] != source) or _first_channel(call) != end:
                break
            source = call.args[0]
            end += shape_of(part)[-1]
            if end == shape_of(source)[-1]:
                return source, count
        return None, 0

    def _runs(self, parts: Sequence[relax.Var], var: relax.Var) -> list[Run] | None:
        """The parts as they are written; None where rows would not be aligned."""
        dtype, pixels = dtype_of(var), math.prod(shape_of(var)[:-1])
        if not _has_vectors(dtype, shape_of(var)[-1]):
            return None
        runs: list[Run] = []
        begin = 0
        for part in parts:
            channels = shape_of(part)[-1]
            bytes_moved = 2 * pixels * channels * itemsize(dtype)
            aligned = _has_vectors(dtype, begin, channels)
            free = aligned and self._is_free(part, var, parts)
            begin += channels
            if free and not self._is_computed_for(part, var):
                runs.append(Run([part], False, channels))
            elif runs and runs[-1].moved:
                last = runs[-1]
                last.parts.append(part)
                last.channels += channels
                last.moved += bytes_moved
                last.copied = True
            else:
                runs.append(Run([part], not free, channels, bytes_moved))
        begins = [sum(run.channels for run in runs[:i]) for i in range(len(runs))]
        if not all(
            _has_vectors(dtype, start, run.channels)
            for start, run in zip(begins, runs, strict=True)
        ):
            return None
        return runs

    def _copy_us(self, var: relax.Var) -> float:
        return self._moving_us(2 * math.prod(shape_of(var)) * itemsize(dtype_of(var)))

    def _is_free(self, part: relax.Var, var: relax.Var, parts: Sequence[relax.Var]) -> bool:
        """Whether a part can be written and read where it lies in a concatenation."""
        if part in self._placed or part in self.cuts or list(parts).count(part) > 1:
            return False
        written = self._uses.can_be_written(part, self._sliceable)
        return written and self._uses.can_be_read(part, self._sliceable, but=var)

    def _is_computed_for(self, part: relax.Var, var: relax.Var) -> bool:
        """Whether FuseOps computes a part in the kernel of the concatenation that reads it, as it
        does each slice, which all of its readers take from the complete tensor."""
        made = op_name(self._values[part])
        alone = made == SLICE or [reader for reader, _ in self._readers[part]] == [var]
        return alone and part not in self.joined and made not in {CALL, CONCAT, *_APART}


def _first_channel(call: relax.Call) -> int | None:
    """The first channel of a slice of channels alone; None for any other slice."""
    source, axes, begin, _, *strides = call.args
    if not isinstance(source, relax.Var) or not is_tensor(source):
        return None
    rank = len(shape_of(source))
    steps = [int(step) for step in strides[0].fields] if strides else []
    if [int(axis) % rank for axis in axes.fields] != [rank - 1] or steps not in ([], [1]):
        return None
    first = int(begin.fields[0])
    return first if first >= 0 else None


def _has_vectors(dtype: str, *channels: int) -> bool:
    """Whether these numbers of channels are multiples of the widest access."""
    return all(count * itemsize(dtype) % ALIGNMENT == 0 for count in channels)

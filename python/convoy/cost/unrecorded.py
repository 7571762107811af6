"""Estimate times of kernels where nothing of the kind is recorded, on any GPU.

A launch takes a constant, each step of 64 channels of the reduction a latency that no other CTA
hides, and arithmetic or memory traffic its share of the roofline. The constants are fitted to the
best forward kernels of each backend over the shipped float16 records of an H200. Logarithms of the
times of best kernels are off by 0.17 to 0.23 in the mean (forward), 0.27 to 0.29 (dgrad), and 0.32
to 0.41 (wgrad).
"""

from __future__ import annotations

import dataclasses

from ..ir.bottleneck import parts
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.dtypes import DTYPE_BYTES
from ..ir.measurement import Measurement
from ..ir.roofline import roofline_us
from ..ir.squeeze_excite import squeeze_and_excite
from ..ir.workload import Workload
from . import native

#: A launch by backend, in microseconds, and of others.
_LAUNCH_US, _OTHER_LAUNCH_US = {"cudnn": 2.75, "cutlass": 3.25, "hopper": 2.5}, 3.0
#: Part of the roofline that is reached, by the first of these with which a candidate's key begins,
#: and by others.
_EFFICIENCY = {"hopper:expand_depthwise": 0.22, "hopper:pointwise_conv": 0.8, "hopper:": 0.5}
_OTHER_EFFICIENCY = 0.65
#: Latency of a step, in microseconds, and its channels.
_STEP_US, _STEP = 0.1, 64
#: Libraries pad channels to as many.
_PADDED, _LIBRARIES = 8, ("cudnn", "cutlass")
#: What each place in the backend's own order adds, up to the last one that counts.
_ORDER, _LAST = 0.02, 20
#: Share of the estimates for a library's kernels of its convolutions that a bottleneck takes at
#: least. It moves two thirds of their bytes; on what it saves beyond that nothing may depend.
_LEAST_OF_PARTS = 0.75
#: Least microseconds of a squeeze-and-excitation block beside its traffic, and least share of the
#: estimates for the kernels that it replaces; of images of more bytes than that it takes twice as
#: long as these, so that nothing depends on how it shares them among blocks.
_LEAST_BLOCK_US, _LEAST_OF_KERNELS, _OF_LARGER, _LARGEST = 6.0, 0.85, 2.0, 16 << 20
#: How far an estimate may be off, as its spread.
_SPREAD = 0.2


def unrecorded(workload: Workload, candidate: Candidate, device: Device) -> Measurement:
    """The estimate for a candidate, without host times."""
    backend = candidate.backend
    first = _LAUNCH_US.get(backend, _OTHER_LAUNCH_US) + _STEP_US * _steps(workload)
    if backend in _LIBRARIES and workload.groups == 1:
        workload = dataclasses.replace(workload, c=-(-workload.c // _PADDED) * _PADDED)
    found = (part for start, part in _EFFICIENCY.items() if candidate.key.startswith(start))
    first += roofline_us(workload, device) / next(found, _OTHER_EFFICIENCY)
    if workload.bottleneck is not None:
        first = max(first, _LEAST_OF_PARTS * _library_us(device, *parts(workload)))
    if workload.squeeze_excite is not None:
        first = max(first, _least_of_block(workload, device))
    us = first * (1.0 + _ORDER * min(candidate.priority, _LAST))
    return Measurement(kernel_us=us, kernel_spread_us=us * _SPREAD)


def _library_us(device: Device, *workloads: Workload) -> float:
    """Estimates for a library's kernels of workloads, all together."""
    found = (unrecorded(workload, Candidate("cudnn", ""), device) for workload in workloads)
    return sum(measurement.kernel_us or 0.0 for measurement in found)


def _least_of_block(workload: Workload, device: Device) -> float:
    """The least estimate for a squeeze-and-excitation block, by what it replaces: TVM's kernel for
    the mean, one for the first GEMM, and one for the second GEMM and the image times it."""
    squeeze, excite = squeeze_and_excite(workload)
    image = workload.pixels * workload.c * DTYPE_BYTES[workload.dtype]
    gates_us = native.gates_us(excite, workload.h * workload.w)
    scaling_us = native.moving_us(workload.bytes_moved, device)
    scaling_us += _library_us(device, excite) if gates_us is None else gates_us
    replaced = native.moving_us(image, device) + _library_us(device, squeeze) + scaling_us
    share = _LEAST_OF_KERNELS if image <= _LARGEST else _OF_LARGER
    return max(_LEAST_BLOCK_US + roofline_us(workload, device), share * replaced)


def _steps(workload: Workload) -> float:
    """Steps of the reduction of one result; the pixels of a weight gradient are shared by CTAs."""
    if workload.op == "wgrad":
        return 0.0
    if workload.bottleneck is not None:
        return sum(map(_steps, parts(workload)))
    if workload.squeeze_excite is not None:
        return sum(map(_steps, squeeze_and_excite(workload)))
    before = workload.expansion.channels if workload.expansion is not None else 0
    channels = workload.k if workload.op == "dgrad" else workload.c
    return (before + workload.taps * channels / workload.groups) / _STEP

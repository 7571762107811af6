"""Estimate times of unmeasured workloads from the records of the most similar ones.

Workloads of similar size, filter and epilogue rank their kernels in the same order. For each
candidate, the time relative to the best one is averaged over the nearest workloads, weighted by
similarity. A candidate that none of them has gets the ratio of the best of its kind (cuDNN engine,
kernel family) plus a margin. The best time itself is that of the neighbours, scaled by the minimum
time that arithmetic and memory bandwidth allow; this also transfers it to another precision.

Another GPU's timings of a workload are a neighbour of their own, further away than this GPU's.
Their ratios count like any; their best time is scaled by the minimum of the GPU that they were
taken on. Records have a GPU's name alone: of one whose bandwidth is not known, only the ratios
count while there is another neighbour.

On the shipped records, with each network's workloads estimated from the other networks, the
selected kernel is 8.4% slower than the best (1,662 workloads of all directions); cuDNN's first
choice is 21.7% slower. By network, forward convolutions are 4.1% to 10.2% slower; for weight
gradients of ResNet-50 (22.6%) cuDNN's first choice is better (14.0%). The constants below were
chosen on the same records.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..ir.bottleneck import parts
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.objective import device_us
from ..ir.roofline import roofline_us
from ..ir.workload import Workload
from ..records.record import HostSample
from .estimate_errors import kind_of
from .unrecorded import unrecorded

#: Workloads that are asked.
NEIGHBOURS = 4
#: Added to a distance before it becomes a weight.
_SOFTENING = 0.25
#: Added to the distance of a workload that was timed on another GPU.
_OTHER_GPU = 1.0
#: Logarithms that are added for a candidate that some, or all, of the neighbours lack.
_ABSENT, _LIKE_ITS_KIND, _UNKNOWN = 0.15, 0.2, 1.0
#: Logarithm that is added for a depthwise convolution where no neighbour is one: kernels of dgrad
#: (7x7, N=64) took some 60 times the minimum on an H100 where dense neighbours suggest 3 times.
_NO_DEPTHWISE = math.log(10)
#: Logarithm for each place in the backend's own order, up to the last one that counts: how a wgrad
#: slices its reduction depends on sizes that its neighbours do not share, and cuDNN knows better.
_USUAL_ORDER, _LAST = 0.02, 20
_ORDER = {"wgrad": 0.2}
#: How far an estimate may be off, as its spread.
_SPREAD = 0.07
_LAUNCH_US = 1.5
#: Of a bottleneck: an MMA of 64 pixels and results and 16 channels, 32 cycles of an H200; and
#: the epilogue of 64 results of each pixel.
_MMA_US, _BLOCK_US = 0.018, 0.34

#: Kernels by the name of their backend and their own.
Key = tuple[str, str]


@dataclass(frozen=True)
class _Known:
    """A workload as measured on one GPU: time of each candidate as inside a network, and host
    times."""

    workload: Workload
    gpu: str
    times: Mapping[Key, float]
    enqueue_us: Mapping[str, float]
    wait_us: Mapping[str, float]

    @functools.cached_property
    def best_us(self) -> float:
        return min(self.times.values())

    @functools.cached_property
    def best_of_kind(self) -> dict[Key, float]:
        """The least time of each kind of kernels."""
        found: dict[Key, float] = {}
        for key, us in self.times.items():
            found[kind_of(*key)] = min(us, found.get(kind_of(*key), math.inf))
        return found


class Neighbours:
    """Estimates for unrecorded workloads from the most similar recorded ones.

    Args:
        recorded: The workloads that there may be timings of, sorted.
        samples: Timings of one of them, of any GPU; asked for near workloads only, since there
            are thousands.
        device: The GPU to estimate for.
    """

    def __init__(
        self,
        recorded: Sequence[Workload],
        samples: Callable[[Workload], Sequence[HostSample]],
        device: Device,
    ) -> None:
        self._device, self._samples = device, samples
        # Most records are of the default device.
        self._gpus = {gpu.name: gpu for gpu in (Device(), device)}
        self._workloads: dict[str, list[Workload]] = defaultdict(list)
        for workload in recorded:
            self._workloads[workload.op].append(workload)
        self._features: dict[str, np.ndarray] = {}
        self._known: dict[Workload, list[_Known]] = {}

    def estimates(self, workload: Workload, candidates: Sequence[Candidate]) -> list[Measurement]:
        """An estimate for each candidate, without samples."""
        near = self._near(workload)
        if not near:
            return [unrecorded(workload, candidate, self._device) for candidate in candidates]
        best = _mean(self._over_least(near))
        if workload.is_depthwise and not any(known.workload.is_depthwise for known, _ in near):
            best += _NO_DEPTHWISE
        best_us = least_us(workload, self._device) * math.exp(best)
        order = _ORDER.get(workload.op, _USUAL_ORDER)
        return [self._estimate(candidate, best_us, near, order) for candidate in candidates]

    def _near(self, workload: Workload) -> list[tuple[_Known, float]]:
        """The nearest workloads with timings, and their weights, which add up to one."""
        op, workloads = workload.op, self._workloads.get(workload.op)
        if not workloads:
            return []
        if op not in self._features:
            self._features[op] = np.array(list(map(_features, workloads)))
        distances = np.abs(self._features[op] - np.array(_features(workload))).sum(axis=1)
        found: list[tuple[float, _Known]] = []
        for i in np.argsort(distances, kind="stable"):
            if len(found) == NEIGHBOURS and found[-1][0] <= distances[i]:
                break  # all that is left is further away
            for known in self._of(workloads[i]):
                further = 0.0 if known.gpu == self._device.name else _OTHER_GPU
                found.append((distances[i] + further, known))
            found = sorted(found, key=lambda pair: pair[0])[:NEIGHBOURS]
        weights = np.array([1.0 / (_SOFTENING + distance) for distance, _ in found])
        weights /= weights.sum()
        return [(known, float(w)) for (_, known), w in zip(found, weights, strict=True)]

    def _of(self, workload: Workload) -> list[_Known]:
        """The timings of a workload on each GPU."""
        if workload not in self._known:
            by_gpu: dict[str, list[HostSample]] = defaultdict(list)
            for sample in self._samples(workload):
                by_gpu[sample.gpu].append(sample)
            self._known[workload] = [_known(workload, *of) for of in sorted(by_gpu.items())]
        return self._known[workload]

    def _over_least(self, near: Sequence[tuple[_Known, float]]) -> list[tuple[float, float]]:
        """Logarithms of the neighbours' best times over the minimum, and weights. A GPU of unknown
        bandwidth is taken for this one if there is no other."""
        usable = [pair for pair in near if pair[0].gpu in self._gpus] or near
        return [
            (math.log(k.best_us / least_us(k.workload, self._gpus.get(k.gpu, self._device))), w)
            for k, w in usable
        ]

    def _estimate(
        self,
        candidate: Candidate,
        best_us: float,
        near: Sequence[tuple[_Known, float]],
        order: float,
    ) -> Measurement:
        backend = candidate.backend
        ratio = _log_ratio((backend, candidate.kernel), near)
        us = best_us * math.exp(ratio + order * min(candidate.priority, _LAST))
        enqueue = _mean((k.enqueue_us[backend], w) for k, w in near if backend in k.enqueue_us)
        wait = _mean((k.wait_us[backend], w) for k, w in near if backend in k.wait_us)
        return Measurement(
            kernel_us=us,
            kernel_spread_us=us * _SPREAD,
            enqueue_us=enqueue or None,
            e2e_us=us + wait if wait else None,
        )


def least_us(workload: Workload, device: Device) -> float:
    """Time of a launch, and of arithmetic or memory traffic, whichever is more; of a bottleneck
    also of its tiles, a few at a time."""
    tiles_us = _tiles_us(workload, device) if workload.bottleneck is not None else 0.0
    return _LAUNCH_US + max(roofline_us(workload, device), tiles_us)


def _tiles_us(workload: Workload, device: Device) -> float:
    """Time of tiles of 8 x 8 pixels of a bottleneck in all channels, two at a time on an SM."""
    each = parts(workload)
    mmas = sum(part.taps * -(-part.c // 16) * -(-part.k // 64) for part in each)
    blocks = sum(-(-part.k // 64) for part in each[1:])
    tiles = workload.n * -(-workload.p // 8) * -(-workload.q // 8)
    waves = max(1.0, tiles / (2 * device.sm_count))
    return waves * (_MMA_US * mmas + _BLOCK_US * blocks)


def _known(workload: Workload, gpu: str, samples: Sequence[HostSample]) -> _Known:
    times: dict[Key, float] = {}
    host: dict[str, list[HostSample]] = defaultdict(list)
    for sample in samples:
        us = device_us(Measurement(kernel_us=sample.kernel_us, cold_us=sample.cold_us))
        key = sample.backend, sample.kernel
        times[key] = min(us, times.get(key, math.inf))
        host[sample.backend].append(sample)
    return _Known(
        workload,
        gpu,
        times,
        {name: float(np.median([s.enqueue_us for s in found])) for name, found in host.items()},
        {name: float(np.median([s.wait_us for s in found])) for name, found in host.items()},
    )


def _features(workload: Workload) -> list[float]:
    """Position of a workload: logarithms of its sizes, and all else that affects which kernel is
    fastest."""
    epilogue, groups, expansion = workload.epilogue, workload.groups, workload.expansion
    own = [
        math.log2(workload.pixels),
        math.log2(workload.c / groups if expansion is None else expansion.channels),
        math.log2(workload.k / groups),
        1.5 * math.log2(workload.taps),
        2.0 * math.log2(max(workload.stride)),
        0.5 * math.log2(groups),
        1.0 * epilogue.residual,
        0.3 * epilogue.bias,
        0.5 * (epilogue.activation != "none"),
        2.0 * epilogue.affine_relu,
        2.0 * (workload.dtype == "float32"),
    ]
    if workload.bottleneck is not None:  # alike are those of one operator
        bottleneck = workload.bottleneck
        own += [
            math.log2(bottleneck.expand),
            math.log2(1 + bottleneck.reduce),
            1.0 * bottleneck.expand_epilogue.residual,
        ]
    if workload.squeeze_excite is not None:
        own.append(math.log2(workload.squeeze_excite.channels))
    return own


def _log_ratio(key: Key, near: Sequence[tuple[_Known, float]]) -> float:
    """Logarithm of a candidate's time over the best one, as the neighbours have it."""
    same = [(math.log(k.times[key] / k.best_us), w) for k, w in near if key in k.times]
    if same:
        there = sum(weight for _, weight in same)
        return sum(ratio * weight for ratio, weight in same) + _ABSENT * (1.0 - there)
    kind = kind_of(*key)
    alike = [
        (math.log(known.best_of_kind[kind] / known.best_us), weight)
        for known, weight in near
        if kind in known.best_of_kind
    ]
    return _mean(alike) + _LIKE_ITS_KIND if alike else _UNKNOWN


def _mean(pairs: Iterable[tuple[float, float]]) -> float:
    """The weighted mean of (value, weight); 0 if there are none."""
    total = weights = 0.0
    for value, weight in pairs:
        total, weights = total + value * weight, weights + weight
    return total / weights if weights else 0.0

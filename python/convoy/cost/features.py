"""Features of a workload and a candidate for the cost model.

Tile sizes are known for kernels that Convoy compiles. cuDNN's engines are opaque: they are
described by number, knobs and rank in the heuristics' list. Knobs that contain a tile size or a
split are also given under the names of the compiled kernels' features.
"""

from __future__ import annotations

import contextlib
import functools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidOption
from ..ir import fields as checks
from ..ir.activation import ACTIVATIONS
from ..ir.candidate import Candidate
from ..ir.defaults import LIBRARIES
from ..ir.device import Device
from ..ir.dtypes import DTYPE_BYTES
from ..ir.workload import Workload
from ..ir.workload_fields import OPS

Array = npt.NDArray[np.float32]
Features = dict[str, float]

#: Numbers of schedules, families and schedulers; 0 is unknown.
_SCHEDULES = ("cooperative", "pingpong")
_SCHEDULERS = ("tiles", "streamk", "splitk")

#: cudnnBackendKnobType_t of cuDNN 9 that engines were seen to have.
KNOBS = tuple(range(45))
#: CUDNN_KNOB_TYPE_TILE_SIZE: the number of a tile.
TILE_KNOB = 2

WORKLOAD = (
    "op", "log_rows", "log_columns", "log_depth", "log_batch", "channels", "filter", "filter_w",
    "stride", "dilation", "padded", "groups", "depthwise", "bytes_per_element", "log_flops",
    "log_bytes", "intensity", "log_least_us", "channels_mod_8", "outputs_mod_8", "outputs_mod_64",
    "residual", "bias", "activation", "results",
)  # fmt: skip
CANDIDATE = (
    "backend", "family", "priority", "log_workspace", "deterministic", "compiled_at_run_time",
    "tile_rows", "tile_columns", "tile_depth", "cluster", "stages", "schedule", "scheduler",
    "split", "swizzle", "alignment", "epilogue_columns", "log_tiles", "waves", "last_wave",
    "row_use", "column_use", "depth_use", "steps", "log_tile_traffic", "slots", "zero_bias",
    "engine",
)  # fmt: skip
NAMES: tuple[str, ...] = (*WORKLOAD, *CANDIDATE, *(f"knob{kind}" for kind in KNOBS))


def matrix(workload: Workload, candidates: Sequence[Candidate], device: Device) -> Array:
    """Features of shape (candidates, len(NAMES)) in float32; NaN if unknown."""
    common = workload_features(workload, device)
    rows = np.full((len(candidates), len(NAMES)), np.nan, np.float32)
    for row, candidate in zip(rows, candidates, strict=True):
        found = {**common, **candidate_features(workload, candidate, device)}
        row[:] = [found.get(name, math.nan) for name in NAMES]
    return rows


def workload_features(workload: Workload, device: Device) -> Features:
    """Sizes of the workload's implicit GEMM, and whether arithmetic or bandwidth bounds it."""
    w = workload
    _, rows, columns, depth = w.gemms
    # Roofline: Hopper's tensor cores do 2048 multiply-adds a clock in 16 bits.
    peak = 4096 * device.sm_count * 1.7e9 * 2 / DTYPE_BYTES[w.dtype]
    least = max(w.flops / peak, w.bytes_moved / device.memory_bandwidth)
    return {
        "op": OPS.index(w.op),
        "log_rows": math.log2(rows),
        "log_columns": math.log2(columns),
        "log_depth": math.log2(depth),
        "log_batch": math.log2(w.n),
        "channels": w.c // w.groups,
        "filter": w.r,
        "filter_w": w.s,
        "stride": w.stride[0],
        "dilation": w.dilation[0],
        "padded": float(any(w.padding)),
        "groups": w.groups,
        "depthwise": float(w.is_depthwise),
        "bytes_per_element": DTYPE_BYTES[w.dtype],
        "log_flops": math.log2(w.flops),
        "log_bytes": math.log2(w.bytes_moved),
        "intensity": math.log2(w.flops / w.bytes_moved),
        "log_least_us": math.log2(least * 1e6),
        "channels_mod_8": w.c % 8,
        "outputs_mod_8": w.k % 8,
        "outputs_mod_64": w.k % 64,
        "residual": float(w.epilogue.residual),
        "bias": float(w.epilogue.bias),
        "activation": ACTIVATIONS.index(w.epilogue.activation),
        "results": w.num_outputs,
    }


def candidate_features(workload: Workload, candidate: Candidate, device: Device) -> Features:
    """Features that distinguish the candidates of one workload."""
    options = _options(candidate.config)
    found: Features = {
        "backend": _number(candidate.backend, LIBRARIES),
        "priority": candidate.priority,
        "log_workspace": math.log2(1 + candidate.workspace),
        "deterministic": float(candidate.deterministic),
        "compiled_at_run_time": float("runtime_compilation" in candidate.notes),
    }
    kernel = options.get("kernel")
    if kernel is None:
        return found | _engine(options)
    found |= _kernel(kernel, options)
    if "tile_rows" in found:
        found |= _tiling(workload, found, device)
    return found


def kind(candidate: Candidate) -> tuple[object, ...]:
    """Group candidates that differ only in details: family, tile and tile order of a kernel, engine
    and tile of cuDNN, or algorithm of cuBLASLt."""
    options = _options(candidate.config)
    kernel = options.get("kernel")
    if kernel is None:
        knobs = dict(options.get("knobs", ()))
        return candidate.backend, options.get("engine", candidate.kernel), knobs.get(TILE_KNOB)
    tile = kernel.get("tile") or (kernel.get("rows"), kernel.get("columns"))
    return candidate.backend, kernel.get("family"), tuple(tile), kernel.get("scheduler")


@functools.lru_cache(maxsize=8192)  # the same kernels for each workload
def _options(config: str) -> dict[str, Any]:
    """Options of the types that features are made of; others, of a damaged record, are left out."""
    try:
        return _usable(checks.parse_json(config, "config", InvalidOption), _OPTIONS)
    except InvalidOption:
        return {}


def _usable(data: object, fields: Mapping[str, checks.Check]) -> dict[str, Any]:
    given = data if isinstance(data, dict) else {}
    found = {}
    for name in fields.keys() & given.keys():
        with contextlib.suppress(checks.Mismatch):
            found[name] = fields[name](given[name])
    return found


_COUNT = checks.integer(1)
_KERNEL: dict[str, checks.Check] = {
    **dict.fromkeys(("family", "schedule", "scheduler"), checks.text()),
    **dict.fromkeys(("stages", "epilogue_columns", "slots"), checks.integer()),
    **dict.fromkeys(("split", "align", "rows", "columns"), _COUNT),
    "cluster": checks.tuple_of(_COUNT, 2),
    "tile": checks.tuple_of(_COUNT, 3),
    "pingpong": checks.boolean,
}
_OPTIONS: dict[str, checks.Check] = {
    "kernel": lambda value: _usable(value, _KERNEL),
    "engine": checks.integer(),
    "knobs": checks.tuple_of(checks.tuple_of(checks.integer(-(2**31)), 2), most=100),
    "zero_bias": checks.boolean,
    "split_k": _COUNT,
    "swizzle": checks.integer(),
}


def _number(name: str, known: Sequence[str]) -> float:
    return known.index(name) + 1.0 if name in known else 0.0


def _engine(options: dict[str, Any]) -> Features:
    found: Features = {f"knob{kind}": value for kind, value in options.get("knobs", ())}
    found["engine"] = options.get("engine", math.nan)
    found["zero_bias"] = float(options.get("zero_bias", False))
    return found


def _kernel(kernel: dict[str, Any], options: dict[str, Any]) -> Features:
    """Features of a compiled kernel of any family."""
    family = str(kernel.get("family", ""))
    found: Features = {
        "family": float(zlib.crc32(family.encode()) % 4093),  # any number that distinguishes them
        "stages": kernel.get("stages", 0),
        "schedule": _number(kernel.get("schedule", ""), _SCHEDULES),
        "scheduler": _number(kernel.get("scheduler", "tiles"), _SCHEDULERS),
        "split": max(options.get("split_k", 1), kernel.get("split", 1)),
        "swizzle": options.get("swizzle", 0),
        "alignment": kernel.get("align", 8),
        "epilogue_columns": kernel.get("epilogue_columns", 0),
        "slots": kernel.get("slots", 0),
        "cluster": math.prod(kernel.get("cluster", (1, 1))),
    }
    if "tile" in kernel:
        found["tile_rows"], found["tile_columns"], found["tile_depth"] = kernel["tile"]
    elif "rows" in kernel:
        found |= {
            "tile_rows": kernel["rows"],
            "tile_depth": 64,
            "schedule": _number(
                "pingpong" if kernel.get("pingpong") else "cooperative", _SCHEDULES
            ),
        }
    return found


def _tiling(workload: Workload, kernel: Features, device: Device) -> Features:
    """Number of tiles and waves, and their utilization."""
    count, rows, columns, depth = workload.gemms
    m, k = kernel["tile_rows"], kernel["tile_depth"]
    n = kernel.get("tile_columns", columns)  # a tile of rows alone has all columns
    tiles = math.ceil(rows / m) * math.ceil(columns / n) * count
    blocks = tiles * kernel["split"]
    waves = blocks / device.sm_count
    steps = math.ceil(depth / k) / kernel["split"]
    size = DTYPE_BYTES[workload.dtype]
    return {
        "log_tiles": math.log2(tiles),
        "waves": waves,
        "last_wave": waves / math.ceil(waves),
        "row_use": rows / (math.ceil(rows / m) * m),
        "column_use": columns / (math.ceil(columns / n) * n),
        "depth_use": depth / (math.ceil(depth / k) * k),
        "steps": steps,
        "log_tile_traffic": math.log2(blocks * steps * (m + n) * k * size),
    }

"""CUTLASS kernels as a backend: fprop, dgrad, wgrad and GEMM on sm80 and later."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from types import ModuleType

from ....errors import InvalidOption
from ....ir.candidate import Decline
from ....ir.device import Device
from ....ir.workload import Workload
from ..backend import Family, KernelBackend
from . import dgrad, rules, space, wgrad
from .config import KernelConfig, kernel_arch
from .rules import Launch

NAME = "cutlass"
#: Candidates of one workload, unless CONVOY_CUTLASS_LIMIT says otherwise.
MOST_CANDIDATES = 20


def cutlass_backend(limit: int | None = None) -> KernelBackend[KernelConfig]:
    """sm90 has kernels of its own, except for strided dgrad and for tf32 in the backward
    directions.

    ``limit`` caps the candidates of a workload (for tests and short tuning runs); it defaults to
    the environment variable CONVOY_CUTLASS_LIMIT, then to MOST_CANDIDATES.
    """
    family = Family(
        name=NAME,
        libraries=("cuda", "cutlass", "kernels"),
        objections=_objections,
        launches=_launches,
        why_not=_why_not,
        workspace_bytes=_workspace_bytes,
        kernel_from_json=KernelConfig.from_json,
        limit=_limit_from_environment() if limit is None else limit,
        splits=True,
        sliced=_sliced,
    )
    return KernelBackend(family)


def rules_of(workload: Workload) -> ModuleType:
    """The module that knows the kernels of the workload's direction, and which of them fit."""
    return {"dgrad": dgrad, "wgrad": wgrad}.get(workload.op, rules)


def _why_not(launch: Launch, workload: Workload, device: Device) -> str:
    return str(rules_of(workload).why_not(launch, workload, device))


def _workspace_bytes(launch: Launch, workload: Workload, device: Device) -> int:
    return int(rules_of(workload).workspace_bytes(launch, workload))


def _sliced(kernel: KernelConfig, workload: Workload) -> tuple[KernelConfig, frozenset[str]] | None:
    if not kernel.can_be_strided:
        return None
    operands = {"x", "residual", "y"} - ({"x"} if rules.folds_width(kernel, workload) else set())
    return dataclasses.replace(kernel, strided=True), frozenset(operands)


def _launches(workload: Workload, device: Device) -> Sequence[Launch] | Decline:
    its_rules = rules_of(workload)
    possible = [
        launch
        for config in its_rules.kernels(workload, kernel_arch(device.arch))
        for launch in its_rules.launches(config, workload, device)
    ]
    valid = [launch for launch in possible if not its_rules.why_not(launch, workload, device)]
    hopeful = [x for x in valid if its_rules.is_hopeful(x.kernel, workload, device)] or valid
    if not hopeful:
        reasons = {its_rules.why_not(launch, workload, device) for launch in possible}
        return Decline(
            NAME,
            "no kernel fits: " + ("; ".join(sorted(reasons)) or "no vector width divides C, K"),
            "see the limits named; another backend may take it",
        )
    return sorted(hopeful, key=lambda launch: _guess(launch, workload, device))


def _objections(w: Workload, device: Device) -> Iterator[tuple[str, str]]:
    if w.op == "attention":
        yield "op attention", "use the attention backend"
        return
    if w.op == "stem" or w.is_back_to_back:
        yield f"op {w.op}", "use the hopper backend"
        return
    if w.op in ("dgrad", "wgrad") and w.epilogue.name:
        yield f"epilogue {w.epilogue.name} on {w.op}", "leave it outside the subgraph"
    if w.op == "dgrad" and w.stride != (1, 1) and w.dilation != (1, 1):
        yield "strided dgrad with dilation", "use the cudnn backend"
    if w.is_depthwise:
        yield "depthwise convolution", "use the cudnn or tvm backend"
    elif w.groups != 1:
        yield f"groups = {w.groups}", "use the cudnn backend"
    if device.arch < 80:
        yield f"architecture sm_{device.arch}: kernels need sm_80 or later", ""
    if w.is_integer:
        yield from _integer_objections(w)
        return
    if w.acc_dtype != "float32":
        yield f"acc_dtype {w.acc_dtype}: kernels accumulate in float32", ""
    if w.dtype == "float32" and w.math != "tf32":
        yield "strict float32: kernels round operands to tf32", "set math='tf32'"
    if w.dtype != w.out_dtype and w.out_dtype != "float32":
        yield f"{w.dtype} in, {w.out_dtype} out", "equal dtypes, or float32 out"
    for name, count, dtype in (("C", w.c, w.dtype), ("K", w.k, w.out_dtype)):
        if not space.vector_width(count, dtype):
            yield f"{name} = {count} is odd", f"pad {name} to a multiple of 8"


def _integer_objections(w: Workload) -> Iterator[tuple[str, str]]:
    if reason := rules.overflow(w):
        yield f"{reason} may not fit into int32", "use the tvm backend"
    if not space.vector_width(w.c, w.dtype):
        yield f"C = {w.c} of int8 is no multiple of 4", "pad C to a multiple of 4"
    if not space.vector_width(w.k, w.out_dtype):
        yield f"K = {w.k} of int8 is no multiple of 4", "leave the result in int32"


def _guess(launch: Launch, workload: Workload, device: Device) -> tuple[float, str]:
    """A rough time to order candidates by: waves of tiles times main loop steps and overhead."""
    config, its_rules = launch.kernel, rules_of(workload)
    if workload.op == "wgrad":
        return wgrad.guess(launch, workload, device), f"{config.name}.{launch.split_k}"
    m, n, _ = config.tile
    tiles = its_rules.output_tiles(config, workload) * launch.split_k
    waves = -(-tiles // device.sm_count)
    steps = its_rules.reduction_tiles(config, workload) / launch.split_k
    rate = 1.0 if config.is_sm90 else 2.0  # mma.sync reaches about half of what wgmma does
    area = m * n * config.tile[2] / (128 * 128 * 64)
    time = waves * (steps * max(area, 0.2) * rate + 3.0)
    if launch.split_k > 1:
        time += 6.0
    return time, f"{config.name}.{launch.split_k}.{launch.swizzle}"


def _limit_from_environment() -> int:
    text = os.environ.get("CONVOY_CUTLASS_LIMIT", str(MOST_CANDIDATES))
    if not text.isdigit() or int(text) < 1:
        raise InvalidOption(f"CONVOY_CUTLASS_LIMIT={text}", "a positive number")
    return int(text)

"""Candidates of every backend for dgrad and wgrad against float64, all elements, on the GPU: of
each family those that ship compiled, or one.

ResNet-50's convolutions at N = 8, and small problems of odd sizes: uneven padding, dilation,
strides 2 and 3, groups, N = 1 and 3. Inputs are fresh random numbers, outputs are NaN before the
run, guards before and behind them must stay.

    CONVOY_GPU_CASES=small,wgrad_layer       only cases whose name contains one of these
    CONVOY_GPU_PRECISIONS=bfloat16,float32   of ResNet-50's convolutions (default: float16); tf32
    CONVOY_GPU_BACKENDS=cutlass,hopper       only these (default: cudnn, cutlass, hopper)
    CONVOY_GPU_KERNELS=all                   every candidate: nvcc compiles 73 kernels
    CONVOY_GPU_READY=1                       leave out kernels that are not compiled yet
    CONVOY_GPU_REPORT=file.jsonl             append one line for each candidate: its relative error

``scripts/accuracy_table.py`` makes tables of such reports.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from convoy import paths
from convoy.backends import registry
from convoy.backends.base import Backend
from convoy.backends.kernels.backend import KernelBackend
from convoy.backends.kernels.kernel import Kernel
from convoy.backends.load import load_candidate
from convoy.errors import ConvoyError
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.runtime import current_device
from convoy.runtime.library import function

from ..helpers.few_kernels import few
from ..helpers.kernel_accuracy import convolved, report

pytestmark = pytest.mark.gpu

#: Relative L2 error against float64, by the type of the result.
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5}
TF32_TOLERANCE = 1e-3
GUARD = 512  # elements before and behind every output that no kernel may touch
F16 = {"dtype": "float16", "out_dtype": "float16"}
BF16 = {"dtype": "bfloat16", "out_dtype": "bfloat16"}
F32 = {"dtype": "float32", "out_dtype": "float32"}
TF32 = {**F32, "math": "tf32"}
PRECISIONS = {"float16": F16, "bfloat16": BF16, "float32": F32, "tf32": TF32}


def resnet50(precision: str = "float16") -> Iterator[tuple[str, dict[str, Any]]]:
    data = json.loads((paths.workloads_dir() / "resnet50.json").read_text())
    for entry in data["convolutions"]:
        sizes = {key: value for key, value in entry.items() if key != "count"}
        fields = {"n": 8, **sizes, **PRECISIONS[precision]}
        stride = f"_s{entry['stride'][0]}" if entry["stride"] != [1, 1] else ""
        yield (
            f"layer_{entry['h']}_{entry['c']}_{entry['k']}_{entry['r']}{stride}_{precision}",
            fields,
        )


def small() -> Iterator[tuple[str, dict[str, Any]]]:
    """3x3 over 3x33x47x24 -> 40 with padding 1, unless changed."""
    base: dict[str, Any] = {"n": 3, "h": 33, "w": 47, "c": 24, "k": 40, "r": 3, "s": 3}
    base["padding"] = [1, 1, 1, 1]
    changes: dict[str, dict[str, Any]] = {
        "odd": {},
        "odd_n1": {"n": 1},
        "odd_bf16": BF16,
        "odd_f32": F32,
        "odd_tf32": TF32,
        "odd_s2": {"stride": [2, 2]},
        "odd_s2_n1": {"stride": [2, 2], "n": 1},
        "odd_s2_bf16": {"stride": [2, 2], **BF16},
        "odd_s2_f32": {"stride": [2, 2], **F32},
        "odd_s2_tf32": {"stride": [2, 2], **TF32},
        "odd_s3": {"stride": [3, 3]},
        "odd_s2x1": {"stride": [2, 1], "padding": [0, 0, 0, 0]},
        "uneven": {"padding": [2, 1, 0, 1]},
        "uneven_s2": {"padding": [0, 1, 2, 1], "stride": [2, 2]},
        "dilated": {"dilation": [2, 2], "padding": [2, 2, 2, 2]},
        "dilated_bf16": {"dilation": [2, 2], "padding": [2, 2, 2, 2], **BF16},
        "dilated_s2": {"dilation": [2, 2], "padding": [2, 2, 2, 2], "stride": [2, 2]},
        "filter_5x2": {"r": 5, "s": 2, "padding": [2, 1, 1, 0]},
        "filter_7x7_s3": {"r": 7, "s": 7, "padding": [3, 3, 3, 3], "stride": [3, 3]},
        "pointwise": {"r": 1, "s": 1, "padding": [0, 0, 0, 0]},
        "pointwise_n1": {"r": 1, "s": 1, "padding": [0, 0, 0, 0], "n": 1, "c": 264, "k": 200},
        "pointwise_s2": {"r": 1, "s": 1, "padding": [0, 0, 0, 0], "stride": [2, 2]},
        "pointwise_s3_padded": {"r": 1, "s": 1, "padding": [1, 0, 1, 0], "stride": [3, 3]},
        "wide": {"c": 136, "k": 264, "h": 15, "w": 13},
        "deep": {"c": 512, "k": 512, "h": 7, "w": 7, "n": 1},
        "align4": {"c": 36, "k": 44},
        "align4_s2": {"c": 36, "k": 44, "stride": [2, 2]},
        "align2": {"c": 38, "k": 42},
        "groups": {"groups": 2, "c": 48, "k": 80},
        "groups_s2": {"groups": 2, "c": 48, "k": 80, "stride": [2, 2]},
        "depthwise": {"groups": 32, "c": 32, "k": 32},
        "f32_out": {"out_dtype": "float32"},
        "stem": {"c": 3, "k": 64, "r": 7, "s": 7, "stride": [2, 2], "padding": [3, 3, 3, 3]},
    }
    for name, changed in changes.items():
        yield f"small_{name}", base | changed


def cases() -> list[Any]:
    wanted = os.environ.get("CONVOY_GPU_CASES", "").split(",")
    precisions = os.environ.get("CONVOY_GPU_PRECISIONS", "float16").split(",")
    every = [*small(), *(case for precision in precisions for case in resnet50(precision))]
    found = []
    for op in ("dgrad", "wgrad"):
        for name, fields in every:
            label = f"{op}_{name}"
            if any(part in label for part in wanted):
                found.append(pytest.param(Workload.from_json({"op": op, **fields}), id=label))
    return found


def backends() -> list[str]:
    return os.environ.get("CONVOY_GPU_BACKENDS", "cudnn,cutlass,hopper").split(",")


class Problem:
    """A workload's operands on the GPU, the float64 gradient, and a guarded output."""

    def __init__(self, w: Workload) -> None:
        import torch

        self.torch, self.w = torch, w
        dtype = getattr(torch, w.dtype)
        shapes = {name: shape for name, shape, _ in w.operand_shapes()}

        def random(*shape: int) -> Any:
            return (torch.rand(shape, device="cuda") * 2 - 1).to(dtype)

        x = random(w.n, w.h, w.w, w.c)
        filt = random(w.k, w.r, w.s, w.c // w.groups)
        dy = random(w.n, w.p, w.q, w.k)
        self.inputs = [dy, filt if w.op == "dgrad" else x]
        self.expected = self._gradient(x, filt, dy)
        name = "dx" if w.op == "dgrad" else "dw"
        count = torch.Size(shapes[name]).numel()
        self._raw = torch.empty(count + 2 * GUARD, dtype=getattr(torch, w.out_dtype), device="cuda")
        self.out = self._raw[GUARD : GUARD + count].view(shapes[name])

    def _gradient(self, x: Any, filt: Any, dy: Any) -> Any:
        """By differentiation of the definition in float64."""
        x64, filt64 = (t.double().requires_grad_() for t in (x, filt))
        y = convolved(self.w, x64, filt64)
        target = x64 if self.w.op == "dgrad" else filt64
        return self.torch.autograd.grad(y, target, dy.double())[0]

    def error(self, run: Any) -> float:
        """Relative L2 error of one run; infinite for elements not written or guards touched."""
        import tvm_ffi

        torch = self.torch
        self._raw.fill_(float("nan"))
        torch.cuda.synchronize()
        tensors = [tvm_ffi.from_dlpack(t) for t in (*self.inputs, self.out)]
        function("measure.call")(run, tensors, 0)
        torch.cuda.synchronize()
        guards = torch.cat([self._raw[:GUARD], self._raw[-GUARD:]])
        if not bool(guards.isnan().all()) or bool(self.out.isnan().any()):
            return float("inf")
        difference = self.out.double() - self.expected
        return float(difference.norm() / self.expected.norm().clamp(min=1e-30))


def proposed(backend: Backend, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
    """Candidates, those of a family of compiled kernels as ``few`` chooses."""
    found = backend.propose(workload, device)
    if isinstance(found, Decline) or not isinstance(backend, KernelBackend):
        return found
    chosen = few((backend.launch_of(c).kernel for c in found), None, "scheduler", "iterator")
    return [candidate for candidate in found if backend.launch_of(candidate).kernel in chosen]


def kernels(parameters: Sequence[Mapping[str, Any]], device: Device) -> set[Kernel]:
    """What the tests of these parameters run."""
    found = set()
    for backend in map(registry.get, backends()):
        if isinstance(backend, KernelBackend):
            for given in parameters:
                candidates = proposed(backend, given["workload"], device)
                if not isinstance(candidates, Decline):
                    found |= {backend.launch_of(candidate).kernel for candidate in candidates}
    return found


@pytest.mark.parametrize("workload", cases())
def test_candidates_against_float64(workload: Workload) -> None:
    torch = pytest.importorskip("torch")
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(len(workload.key))
    device = current_device()
    problem = Problem(workload)
    limit = TF32_TOLERANCE if workload.math == "tf32" else TOLERANCE[workload.out_dtype]
    if workload.dtype != workload.out_dtype:
        limit = TOLERANCE[workload.dtype]
    wrong, right = [], 0
    for name in backends():
        backend = registry.get(name)
        found = proposed(backend, workload, device)
        if isinstance(found, Decline):
            assert found.reason
            continue
        if os.environ.get("CONVOY_GPU_READY"):
            found = [candidate for candidate in found if backend.is_ready(candidate)]
        backend.prepare([(workload, candidate) for candidate in found], device)
        for candidate in found:
            try:
                call = load_candidate(backend, workload, candidate, device)
                error = problem.error(call)
            except (ConvoyError, RuntimeError) as failure:
                wrong.append(f"{candidate.key}: {failure}"[:300])
                report(workload, candidate.key, math.inf, limit)
                continue
            report(workload, candidate.key, error, limit)
            right += error <= limit
            if not error <= limit:
                wrong.append(f"{candidate.key}: relative error {error:.2e} above {limit:.0e}")
    assert not wrong, f"{workload.key}, {right} right:\n" + "\n".join(wrong)
    assert right or "cudnn" not in backends(), f"{workload.key}: no backend takes it"

"""Every CUTLASS kernel of the space against float64, on the GPU, through the C ABI alone.

Each case is a workload of odd sizes; all kernels and split counts that are valid for it run,
hopeful or not; in variations of a case only a few do, those first that ship compiled. Outputs and
workspace are poisoned with NaN, a guard behind each output is checked, and every launch runs twice,
the second time replayed from a CUDA graph.

    CONVOY_GPU_CASES=stem,bf16          only cases whose name contains one of these
    CONVOY_GPU_WORKLOADS=file.jsonl     instead: the proposed candidates of these workloads
    CONVOY_TEST_CACHE_DIR=folder        keeps the compiled kernels
    CONVOY_GPU_KERNELS=all              all kernels in every case: several hundred to compile
    CONVOY_GPU_READY=1                  leave out kernels that are not compiled yet
    CONVOY_GPU_REPORT=file.jsonl        append one line for each kernel: its relative error
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy.backends.kernels.cache import Entry, KernelCache
from convoy.backends.kernels.compile import compile_many, is_compiled
from convoy.backends.kernels.cutlass import rules as rules
from convoy.backends.kernels.cutlass import space as space
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.cutlass.family import cutlass_backend
from convoy.errors import ConvoyError
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.dtypes import DTYPE_BYTES
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure.requantization import requantized, rows

from ..helpers.few_kernels import few
from ..helpers.kernel_abi.library import KernelLibrary, Operands, Shape
from ..helpers.kernel_accuracy import convolved, report

pytestmark = pytest.mark.gpu

TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-3, "int32": 0.0, "int8": 0.0}
GUARD = 512  # bytes behind every output that no kernel may touch
BIAS_RELU = Epilogue(bias=True, activation="relu")
BLOCK_END = Epilogue(residual=True, affine_relu=True)
ONLY = dataclasses.replace(BLOCK_END, affine_only=True)
ALL = Epilogue(residual=True, bias=True, activation="relu", affine_relu=True)
BF16 = {"dtype": "bfloat16", "out_dtype": "bfloat16"}
INT8 = {"dtype": "int8", "out_dtype": "int32", "acc_dtype": "int32"}
TF32 = {"dtype": "float32", "out_dtype": "float32", "math": "tf32"}

STEM: dict[str, Any] = {"h": 65, "w": 63, "k": 64, "r": 7, "s": 7, "stride": (2, 2)}


@dataclass(frozen=True)
class Case:
    """``most`` caps the kernels of a case (``few``)."""

    name: str
    workload: Workload
    most: int = 1000


def conv(epilogue: Epilogue = BIAS_RELU, **changes: Any) -> Workload:
    """3x3 over 3x33x47x24 -> 40 with uneven padding, unless changed."""
    fields: dict[str, Any] = {"op": "fprop", "n": 3, "h": 33, "w": 47, "c": 24, "k": 40}
    fields |= {"r": 3, "s": 3, "padding": (1, 2, 0, 1), "epilogue": epilogue}
    return Workload(**fields | changes)


def pointwise(epilogue: Epilogue = BLOCK_END, **changes: Any) -> Workload:
    return conv(epilogue, **{"r": 1, "s": 1, "padding": (0, 0, 0, 0)} | changes)


def integers() -> Iterator[Case]:
    """int8: exact for every vector width, stride, padding and dilation, small and large."""
    bias = Epilogue(bias=True)
    for n, (c, k) in itertools.product((1, 8), ((64, 64), (40, 24), (36, 7), (4, 130))):
        most = 4 if c == k else 2
        yield Case(f"int8_n{n}_c{c}_k{k}", conv(bias, n=n, c=c, k=k, **INT8), most)
    changes: dict[str, dict[str, Any]] = {
        "stride2": {"stride": (2, 2)},
        "stride_uneven": {"stride": (3, 1), "padding": (2, 0, 1, 3)},
        "dilation": {"dilation": (2, 3), "padding": (2, 3, 2, 3)},
        "5x3": {"r": 5, "s": 3, "stride": (1, 2)},
        "1x1": {"r": 1, "s": 1, "padding": (0,) * 4},
        "1x1_stride2": {"r": 1, "s": 1, "padding": (0,) * 4, "stride": (2, 2)},
        "deep": {"n": 1, "h": 7, "w": 7, "c": 2048, "k": 264, "padding": (1,) * 4},
        "many_tiles": {"n": 8, "h": 57, "w": 55, "k": 512},
        "analytic": {"h": 40, "w": 40, "r": 33, "s": 1, "padding": (0,) * 4},
    }
    for name, changed in changes.items():
        most = 1 if name == "analytic" else 4
        yield Case(f"int8_{name}", conv(bias, **{"c": 64, "k": 96, **INT8, **changed}), most)
    for name, low, high in (("asymmetric", -3, 252), ("relu", 0, 255), ("symmetric", -128, 127)):
        clip = Epilogue(bias=True, activation="clip", clip_min=low, clip_max=high)
        quantized = INT8 | {"out_dtype": "int8"}
        for c, k in ((64, 64), (40, 24), (4, 132)):
            yield Case(f"int8_{name}_c{c}", conv(clip, c=c, k=k, **quantized), 4 if c == k else 2)
        yield Case(f"int8_{name}_1x1", pointwise(clip, n=8, c=256, k=136, **quantized))
    yield Case("int8_no_bias", conv(Epilogue(), c=64, k=64, **INT8))
    yield Case("int8_matmul", Workload("matmul", 100, 1, 1, 512, 1000, 1, 1, epilogue=bias, **INT8))


def activations() -> Iterator[Case]:
    """Every activation before and behind the residual, on the families of both architectures."""
    for name in ACTIVATIONS[2:]:
        bounds = {"clip_min": -0.5, "clip_max": 1.5} if name == "clip" else {}
        alpha = 0.3 if name in WITH_ALPHA else 0.0
        epilogue = Epilogue(True, True, name, **bounds, alpha=alpha)
        yield Case(f"conv_{name}", conv(epilogue, c=64), most=1)
        last = dataclasses.replace(epilogue, residual_last=True)
        yield Case(f"gemm_{name}_residual", pointwise(last, c=64), most=1)
        yield Case(f"sm80_{name}_residual", conv(last, c=36), most=1)
    last = Epilogue(True, True, "silu", affine_relu=True, residual_last=True)
    yield Case("conv_silu_residual_affine", conv(last, c=64), most=1)


CASES = [
    # One kernel serves all shapes: cases that share dtype and epilogue cost no compilation.
    Case("conv_asymmetric", conv()),
    Case("conv_n1", conv(n=1)),
    Case("conv_stride2", conv(stride=(2, 2))),
    Case("conv_stride_uneven", conv(stride=(3, 1), padding=(2, 0, 1, 3))),
    Case("conv_dilation2", conv(dilation=(2, 2), padding=(2, 2, 2, 2))),
    Case("conv_5x3", conv(r=5, s=3, dilation=(1, 3), stride=(1, 2))),
    Case("conv_wide", conv(n=2, h=15, w=13, c=136, k=264)),
    Case("conv_deep", conv(n=1, h=7, w=7, c=512, k=512, padding=(1, 1, 1, 1))),
    Case("conv_many_tiles", conv(n=16, h=57, w=55, c=64, k=256)),
    Case("conv_1x1_stride2", pointwise(BIAS_RELU, c=64, k=136, stride=(2, 2))),
    Case("gemm", pointwise()),
    Case("gemm_n1", pointwise(n=1, c=72, k=1000)),
    Case("gemm_deep", pointwise(n=2, h=7, w=7, c=2048, k=512)),
    Case("gemm_many_tiles", pointwise(n=32, c=128, k=264)),
    Case("gemm_only_affine", pointwise(ONLY)),
    Case("conv_only_affine", conv(dataclasses.replace(ALL, affine_only=True), c=128, n=1), most=4),
    Case("gemm_plain", pointwise(Epilogue(), c=256), most=3),
    Case("matmul", Workload("matmul", 100, 1, 1, 2048, 1000, 1, 1, epilogue=BIAS_RELU), most=4),
    Case("conv_residual_relu", conv(dataclasses.replace(BIAS_RELU, residual=True)), most=3),
    Case("conv_all_epilogue", conv(ALL, c=128, n=1), most=4),
    Case("bf16_conv", conv(**BF16), most=3),
    Case("bf16_gemm", pointwise(c=256, **BF16), most=1),
    Case("tf32_conv", conv(c=20, k=36, **TF32), most=4),
    Case("tf32_gemm", pointwise(c=132, k=68, **TF32), most=2),
    Case("f32_out", conv(Epilogue(bias=True), c=64, out_dtype="float32"), most=2),
    Case("align4", conv(c=36, k=44), most=3),
    Case("align2", conv(c=38, k=42), most=2),
    Case("align2_split", conv(ALL, n=1, h=9, w=9, c=390, k=42), most=1),
    Case("tf32_align1", conv(c=5, k=7, **TF32), most=1),
    Case("analytic", conv(h=40, w=40, r=33, s=1, c=16, padding=(0,) * 4), most=3),
    *(
        Case(f"stem_c{c}", conv(**STEM, c=c, padding=(3,) * 4), most=3 if c % 8 else 12)
        for c in (4, 8, 12, 16)
    ),
    Case("stem_bf16", conv(**STEM, c=4, **BF16), most=2),
    *activations(),
    *integers(),
]


def chosen_cases() -> list[Case]:
    if path := os.environ.get("CONVOY_GPU_WORKLOADS"):
        lines = [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
        found = [Workload.from_json(line.get("workload", line)) for line in lines]
        return [Case(workload.key, workload, most=0) for workload in dict.fromkeys(found)]
    if names := os.environ.get("CONVOY_GPU_CASES"):
        return [c for c in CASES if any(part in c.name for part in names.split(","))]
    return CASES


def launches_of(case: Case, device: Device) -> list[rules.Launch]:
    """All valid launches of a case, or those proposed for a workload given by file (most = 0)."""
    if case.most == 0:
        proposed = cutlass_backend().propose(case.workload, device)
        return (
            []
            if isinstance(proposed, Decline)
            else [cutlass_backend().launch_of(c) for c in proposed]
        )
    valid = [
        launch
        for config in space.kernels(case.workload, device.arch)
        for launch in rules.launches(config, case.workload, device)
        if not rules.why_not(launch, case.workload, device)
    ]
    chosen = few((launch.kernel for launch in valid), case.most, "iterator")
    found = [launch for launch in valid if launch.kernel in chosen]
    if os.environ.get("CONVOY_GPU_READY"):
        found = [x for x in found if is_compiled(x.kernel)]
    return found


class Problem:
    """Operands of a workload on the GPU, the float64 result, and poisoned outputs."""

    def __init__(self, workload: Workload) -> None:
        import torch

        self.torch, self.workload = torch, workload
        generator = torch.Generator("cuda").manual_seed(7)
        self.tensors = {}
        for name, shape, dtype in workload.operand_shapes():
            kind = getattr(torch, dtype)
            if name in ("y", "y2"):
                count = torch.Size(shape).numel() * DTYPE_BYTES[dtype]
                self.tensors[name] = torch.empty(count + GUARD, dtype=torch.uint8, device="cuda")
            elif workload.requantizes and name == "bias":
                drawn = rows(workload, np.random.default_rng(7)).reshape(shape)
                self.tensors[name] = torch.from_numpy(drawn).cuda()
            elif workload.is_integer:
                values = torch.randint(-128, 128, shape, generator=generator, device="cuda")
                values[0] = -128  # the largest products
                self.tensors[name] = values.to(kind)
            else:
                values = torch.rand(shape, generator=generator, device="cuda") * 2 - 1
                self.tensors[name] = values.to(kind)
        self.expected = self._reference()
        torch.cuda.synchronize()  # kernels run, and are compared, on a stream of their own

    def _reference(self) -> list[Any]:
        torch, w = self.torch, self.workload
        t = {k: v.double() for k, v in self.tensors.items() if k not in ("y", "y2")}
        if w.op == "matmul":
            y = t["x"] @ t["w"].T
        else:
            y = convolved(w, t["x"], t["w"])
        if w.requantizes:
            channels = self.tensors["bias"].cpu().numpy()
            return [torch.from_numpy(requantized(w, y.cpu().numpy(), channels)).to(y.device)]
        e, residual = w.epilogue, t.get("residual", 0)
        y = y + t.get("bias", 0) + (0 if e.residual_last else residual)
        f = torch.nn.functional
        y = {
            "none": lambda: y, "relu": lambda: f.relu(y), "tanh": lambda: torch.tanh(y),
            "clip": lambda: y.clamp(e.clip_min, e.clip_max), "sigmoid": lambda: torch.sigmoid(y),
            "silu": lambda: f.silu(y), "gelu": lambda: f.gelu(y), "mish": lambda: f.mish(y),
            "gelu_tanh": lambda: f.gelu(y, approximate="tanh"), "elu": lambda: f.elu(y, e.alpha),
            "hardswish": lambda: f.hardswish(y), "softplus": lambda: f.softplus(y),
            "leaky_relu": lambda: f.leaky_relu(y, e.alpha),
        }[e.activation]()  # fmt: skip
        y = y + residual if e.residual_last else y
        results = [y] if e.writes_y else []
        return [*results, (t["scale"] * y + t["shift"]).clamp(min=0)] if e.affine_relu else results

    def outputs(self) -> list[Any]:
        return [self.tensors[name] for name in ("y", "y2") if name in self.tensors]

    def poison(self) -> None:
        for output in self.outputs():
            output.fill_(0xFF)

    def error(self) -> float:
        """Largest relative L2 error of the outputs; infinite when a guard was overwritten."""
        worst = 0.0
        kind = getattr(self.torch, self.workload.out_dtype)
        for output, expected in zip(self.outputs(), self.expected, strict=True):
            body, guard = output[:-GUARD], output[-GUARD:]
            if not bool((guard == 0xFF).all()):
                return float("inf")
            difference = body.view(kind).view(expected.shape).double() - expected
            worst = max(worst, float(difference.norm() / expected.norm()))
        return worst if worst == worst else float("inf")

    def operands(self, workspace: Any) -> Operands:
        def address(name: str) -> int | None:
            return self.tensors[name].data_ptr() if name in self.tensors else None

        names = ("x", "w", "residual", "bias", "scale", "shift", "y", "y2")
        return Operands(*(address(name) for name in names), workspace.data_ptr())


def run(launch: rules.Launch, problem: Problem, library: KernelLibrary, device: Device) -> float:
    """Larger error of a direct launch and of one replayed from a CUDA graph."""
    torch, workload = problem.torch, problem.workload
    shape = Shape.of(workload, device.sm_count, launch.split_k, launch.swizzle)
    if reason := library.check(shape):
        raise RuntimeError(f"check: {reason}")
    wanted = library.workspace(shape)
    assert wanted <= rules.workspace_bytes(launch, workload), "too small a workspace"
    workspace = torch.empty(wanted + GUARD, dtype=torch.uint8, device="cuda")
    kernel = library.prepare(shape, problem.operands(workspace))
    footprint = kernel.footprint()
    assert footprint.blocks > 0
    assert footprint.threads_per_block == launch.kernel.threads

    errors = []
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for replayed in (False, True):
            problem.poison()
            workspace.fill_(0xFF)
            stream.synchronize()
            if replayed:
                with torch.cuda.graph(graph, stream=stream):
                    kernel.launch(stream.cuda_stream)
                graph.replay()
            else:
                kernel.launch(stream.cuda_stream)
            stream.synchronize()
            untouched = bool((workspace[wanted:] == 0xFF).all())
            errors.append(problem.error() if untouched else float("inf"))
    return max(errors)


@pytest.fixture(scope="module")
def device() -> Device:
    torch = pytest.importorskip("torch")
    properties = torch.cuda.get_device_properties(0)
    return Device(
        name=properties.name,
        arch=properties.major * 10 + properties.minor,
        sm_count=properties.multi_processor_count,
    )


def kernels(parameters: Sequence[Mapping[str, Any]], device: Device) -> set[KernelConfig]:
    """What the tests of these parameters run."""
    return {x.kernel for given in parameters for x in launches_of(given["case"], device)}


@pytest.mark.parametrize("case", chosen_cases(), ids=lambda case: case.name)
def test_kernels_agree_with_float64(case: Case, device: Device) -> None:
    launches = launches_of(case, device)
    if not launches and os.environ.get("CONVOY_GPU_READY"):
        pytest.skip("no kernel of this case is compiled")
    assert launches, "no kernel is valid for this case"
    libraries = compile_many({launch.kernel for launch in launches})
    problem = Problem(case.workload)
    tolerance = TOLERANCE[case.workload.out_dtype]
    wrong = []
    print(f"\n{case.workload.key}")
    for launch in launches:
        entry = libraries[launch.kernel]
        name = f"{launch.kernel.name} split {launch.split_k} swizzle {launch.swizzle}"
        try:
            if not isinstance(entry, Entry):
                raise RuntimeError(str(entry)[:300])
            error = run(launch, problem, KernelLibrary(KernelCache().file(entry)), device)
            verdict = f"{error:.1e}"
        except (RuntimeError, ConvoyError) as failure:
            error, verdict = float("inf"), str(failure)
        print(f"  {name:90s} {verdict}")
        report(case.workload, f"cutlass:{name}", error, tolerance)
        if not error <= tolerance:
            wrong.append(f"{name}: {verdict}")
    assert not wrong, "\n".join(wrong)

"""The cuBLASLt backend without a GPU: which workloads it takes, and what it keeps of them.

``tests/runtime/test_cublaslt_runtime.py`` runs its kernels against a stand-in.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.backends import registry
from convoy.backends.cublaslt import FIRST_CHOICE, CublasLtBackend, cublas_version_number
from convoy.errors import ConvoyError, InvalidOption
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.candidate import Candidate, Decline, make_config
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.runtime import create_module

H200 = Device()
BACKEND = CublasLtBackend()
ALGO = make_config(algo="00ff" * 32, version=131000)


def gemm(op: str = "matmul", **changes: object) -> Workload:
    fields: dict = {"op": op, "n": 8, "h": 1, "w": 1, "c": 64, "k": 128, "r": 1, "s": 1}
    return Workload(**{**fields, **changes})


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (gemm("fprop", h=8, w=8, r=3, s=3), "not a GEMM"),
        (gemm("fprop", h=8, w=8, stride=(2, 2)), "not a GEMM"),
        (gemm("fprop", h=8, w=8, padding=(0, 1, 0, 0)), "not a GEMM"),
        (gemm("fprop", h=8, w=8, groups=2), "not a GEMM"),
        (gemm(epilogue=Epilogue(activation="gelu")), "gelu"),
        (gemm(epilogue=Epilogue(residual=True, activation="relu", residual_last=True)), "residual"),
        (gemm(epilogue=Epilogue(affine_relu=True)), "affinerelu"),
        (gemm("wgrad", epilogue=Epilogue(bias=True)), "bias on wgrad"),
        (gemm(dtype="float32", out_dtype="float16"), "float32 in, float16 out"),
        (gemm(dtype="float16", out_dtype="bfloat16"), "float16 in, bfloat16 out"),
        (gemm(acc_dtype="float16"), "acc_dtype"),
    ],
    ids=str,
)
def test_declines_with_a_reason(workload: Workload, reason: str) -> None:
    decline = BACKEND.propose(workload, H200)
    assert isinstance(decline, Decline) and reason in decline.reason


def test_batched_products_are_cublaslts_alone() -> None:
    batched = gemm(groups=4)
    assert BACKEND.accepts(batched, H200) is None
    for name in ("cudnn", "cutlass", "hopper", "depthwise", "attention"):
        assert registry.get(name).accepts(batched, H200) is not None, name


def test_declines_old_gpus() -> None:
    decline = BACKEND.accepts(gemm(), Device("NVIDIA V100", 70, 80))
    assert decline is not None and "7.0" in decline.reason


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    op = draw(st.sampled_from(("fprop", "matmul", "dgrad", "wgrad")))
    side = 1 if op == "matmul" else draw(st.integers(1, 9))
    r = 1 if op == "matmul" else draw(st.sampled_from((1, 1, 1, min(3, side))))
    activation = draw(st.sampled_from(ACTIVATIONS))
    residual = draw(st.booleans())
    epilogue = Epilogue(
        residual=residual,
        bias=draw(st.booleans()),
        activation=activation,
        clip_max=6.0 if activation == "clip" else 0.0,
        alpha=0.1 if activation in WITH_ALPHA else 0.0,
        residual_last=residual and activation != "none" and draw(st.booleans()),
    )
    dtype = draw(st.sampled_from(("float16", "bfloat16", "float32")))
    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    fused = op == "fprop" or (op == "matmul" and groups == 1)
    return Workload(
        op, draw(st.integers(1, 9)), side, side, groups * draw(st.integers(1, 33)),
        groups * draw(st.integers(1, 33)), r, r, groups=groups, dtype=dtype,
        out_dtype=draw(st.sampled_from((dtype, "float32"))),
        epilogue=epilogue if fused else Epilogue(),
    )  # fmt: skip


@given(workloads())
def test_whatever_is_accepted_the_runtime_accepts_too(workload: Workload) -> None:
    """And what is declined for its form it refuses: the rules stand in Python and in C++."""
    entry = BACKEND.build(workload, Candidate("cublaslt", FIRST_CHOICE), H200).entry
    try:
        create_module([{**entry, "symbol": "f"}], {}, arch=90)
    except InvalidOption as err:
        assert BACKEND.accepts(workload, H200) is not None, err
    else:
        assert BACKEND.accepts(workload, H200) is None


def test_without_the_gpu_the_first_choice_is_left_to_the_machine_that_loads() -> None:
    try:
        cublas_version_number()
    except ConvoyError as err:
        pytest.skip(f"no cuBLASLt: {err}")
    absent = Device("NVIDIA H100", 90, 114)
    (candidate,) = BACKEND.propose(gemm(), absent)
    assert candidate.kernel == FIRST_CHOICE
    entry = BACKEND.build(gemm(), candidate, absent).entry
    assert "algo" not in entry and entry["max_workspace"] > 0


def test_an_algorithm_is_kept_as_bytes() -> None:
    candidate = Candidate("cublaslt", "algo66_tile7", ALGO, workspace=4096)
    BACKEND.check(candidate)
    entry = BACKEND.build(gemm(), candidate, H200).entry
    assert entry["algo"] == "00ff" * 32 and entry["version"] == 131000
    assert entry["workspace"] == 4096


@pytest.mark.parametrize(
    "config",
    [
        "{}",
        make_config(algo="00ff" * 32),
        make_config(algo="00ff", version=131000),
        make_config(algo="xx" * 64, version=131000),
        make_config(algo="00ff" * 32, version="13"),
        make_config(algo="00ff" * 32, version=131000, engine=1),
    ],
)
def test_candidates_of_damaged_files_are_refused(config: str) -> None:
    with pytest.raises(InvalidOption):
        BACKEND.check(Candidate("cublaslt", "algo66", config))


def test_estimates_grow_with_the_work_and_keep_the_order() -> None:
    first, later = Candidate("cublaslt", "a"), Candidate("cublaslt", "b", priority=3)
    times = [BACKEND.estimate_us(gemm(n=n), first, H200) for n in (1, 10**4, 10**6)]
    assert times == sorted(times) and 1.0 < times[0] < 10.0
    assert BACKEND.estimate_us(gemm(), later, H200) > BACKEND.estimate_us(gemm(), first, H200)

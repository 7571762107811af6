"""Every algorithm of cuBLASLt's heuristic against float64, on the GPU: inputs are fresh random
numbers, outputs NaN before the run."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.backends.cublaslt import FIRST_CHOICE, CublasLtBackend
from convoy.backends.load import load_candidate
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure.problem import error_of, make_problem, tolerance
from convoy.runtime import present_device

pytestmark = pytest.mark.gpu

TYPES = [
    ("float16", "float16", "default"),
    ("bfloat16", "bfloat16", "default"),
    ("float16", "float32", "default"),
    ("float32", "float32", "default"),
    ("float32", "float32", "tf32"),
]
EPILOGUES = [
    Epilogue(residual=residual, bias=bias, activation=activation)
    for residual in (False, True)
    for bias in (False, True)
    for activation in ("none", "relu", "gelu_tanh")
]


def check(workload: Workload) -> None:
    backend, device = CublasLtBackend(), present_device()
    assert device is not None
    found = backend.propose(workload, device)
    assert not isinstance(found, Decline), found.reason
    problem = make_problem(workload, np.random.default_rng())
    for candidate in (*found, Candidate(backend.name, FIRST_CHOICE)):
        call = load_candidate(backend, workload, candidate, device)
        error = error_of(problem, call)
        assert error <= tolerance(workload), candidate.kernel


@pytest.mark.parametrize("dtype", TYPES, ids="-".join)
@pytest.mark.parametrize("epilogue", EPILOGUES, ids=lambda e: e.name or "plain")
def test_epilogues(epilogue: Epilogue, dtype: tuple[str, str, str]) -> None:
    rows, depth, columns = np.random.default_rng().integers(1, 900, 3)
    types = {"dtype": dtype[0], "out_dtype": dtype[1], "math": dtype[2]}
    # Tensor cores want multiples of eight; other sizes are odd ones' turn.
    depth, columns = (int(size) // 8 * 8 + 8 for size in (depth, columns))
    check(Workload("matmul", int(rows), 1, 1, depth, columns, 1, 1, epilogue=epilogue, **types))


@pytest.mark.parametrize("dtype", TYPES, ids="-".join)
@pytest.mark.parametrize("op", ["fprop", "dgrad", "wgrad"])
@pytest.mark.parametrize("channels", [(64, 136), (33, 50), (7, 1), (1, 129)], ids=str)
def test_convolutions(op: str, channels: tuple[int, int], dtype: tuple[str, str, str]) -> None:
    types = {"dtype": dtype[0], "out_dtype": dtype[1], "math": dtype[2]}
    check(Workload(op, 3, 11, 13, *channels, 1, 1, **types))

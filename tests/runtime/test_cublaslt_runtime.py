"""The cuBLASLt backend of the runtime against a stand-in that computes: numbers, and when which
algorithm is used."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

import pytest
from support import Fakes

SETUP = """
from convoy.backends.cublaslt import CublasLtBackend
from convoy.ir.candidate import Candidate
from convoy.measure import reference
from convoy.runtime.device import current_device
load_runtime()
def calls():
    lt = ctypes.CDLL(locations()["cublaslt"])
    lt.fake_cublaslt_log.restype = ctypes.c_char_p
    return lt.fake_cublaslt_log().decode().splitlines()
backend = CublasLtBackend()
def gemm(op="matmul", residual=False, bias=False, activation="none", **sizes):
    sizes = {"n": 6, "h": 1, "w": 1, "c": 5, "k": 7, **sizes}
    epilogue = Epilogue(residual=residual, bias=bias, activation=activation)
    types = {"dtype": "float32", "out_dtype": "float32"}
    return Workload(op, r=1, s=1, epilogue=epilogue, **types, **sizes)
def entry(w, candidate, **changes):
    binary = backend.build(w, candidate, current_device())
    return {**binary.entry, "symbol": "f", **changes}
def off(w, candidate, **changes):
    arrays, tensors = host_arrays(w), device_arrays(w)
    create_module([entry(w, candidate, **changes)], {})["f"](*tensors)
    names = [name for name, _, _ in w.operand_shapes()]
    (wanted,) = reference.full(w, dict(zip(names, arrays)))
    return float(np.abs(to_host(tensors[-1]) - wanted).max())
"""


def run(fakes: Fakes, code: str, **environment: str) -> Any:
    return fakes.run(SETUP + textwrap.dedent(code), **environment)


def test_results_of_every_operation_and_epilogue(fakes: Fakes) -> None:
    errors, lines = run(
        fakes,
        """
        loads = [gemm(residual=r, bias=b, activation=a)
                 for r in (False, True) for b in (False, True)
                 for a in ("none", "relu", "gelu_tanh")]
        loads += [gemm(op, n=2, h=3, w=4) for op in ("fprop", "dgrad", "wgrad")]
        loads += [gemm("fprop", n=2, h=3, w=4, residual=True, bias=True, activation="relu")]
        found = {w.key: off(w, c) for w in loads for c in backend.propose(w, current_device())[:1]}
        result([found, calls()])
        """,
    )
    assert len(errors) == 16
    assert max(errors.values()) < 1e-5, errors
    assert not [line for line in lines if "VIOLATION" in line]


def test_results_of_a_batch(fakes: Fakes) -> None:
    """Each matrix of the batch is multiplied with its own."""
    error, lines = run(
        fakes,
        """
        w = gemm(c=15, k=21, groups=3)
        assert [shape for _, shape, _ in w.operand_shapes()] == [(3, 6, 5), (3, 7, 5), (3, 6, 7)]
        result([off(w, backend.propose(w, current_device())[0]), calls()])
        """,
    )
    assert error < 1e-5
    assert not [line for line in lines if "VIOLATION" in line]


def test_candidates_are_the_algorithms_of_the_heuristic(fakes: Fakes) -> None:
    found, lines = run(
        fakes,
        """
        w = gemm()
        found = backend.propose(w, current_device())
        for candidate in found: backend.check(candidate)
        calls()
        off(w, found[2])
        result([[[c.kernel, c.workspace, c.priority] for c in found], calls()])
        """,
        FAKE_CUBLASLT_ALGOS="3",
    )
    assert found == [[f"algo{60 + i}_tile7", 1024 * i, i - 1] for i in (1, 2, 3)]
    assert lines == ["check", "matmul algo=3 bytes=3072"], "the heuristic is not asked again"


@pytest.mark.parametrize(
    ("version", "algos", "used"), [("131000", "3", 2), ("131100", "3", 1), ("131000", "1", 1)]
)
def test_heuristic_decides_where_the_algorithm_is_not_there(
    version: str, algos: str, used: int, fakes: Fakes
) -> None:
    """In another version of cuBLASLt the bytes may mean another algorithm."""
    error, lines = run(
        fakes,
        """
        candidate = Candidate("cublaslt", "algo62_tile7",
                              '{"algo":"02%s","version":131000}' % ("0" * 126), 2048)
        result([off(gemm(), candidate), calls()])
        """,
        FAKE_CUBLASLT_VERSION=version,
        FAKE_CUBLASLT_ALGOS=algos,
    )
    assert error < 1e-5
    assert lines[-1] == f"matmul algo={used} bytes={1024 * used}"
    assert ("heuristic" in lines) == (used == 1)


def test_first_choice_of_a_module_built_elsewhere(fakes: Fakes) -> None:
    error, lines = run(
        fakes, 'result([off(gemm(bias=True), Candidate("cublaslt", "first_choice")), calls()])'
    )
    assert error < 1e-5
    assert lines == ["create", "heuristic", "matmul algo=1 bytes=1024"]


def test_capture_and_replay(fakes: Fakes) -> None:
    lines, again = run(
        fakes,
        """
        w = gemm(bias=True)
        t = device_arrays(w)
        f = create_module([entry(w, Candidate("cublaslt", "first_choice"))], {})["f"]; f(*t)
        wanted = to_host(t[-1])
        streams = FakeStreams(cuda); s = streams.create(); streams.use(s); calls(); log()
        streams.begin(s); f(*t); graph = streams.end(s)
        lines = calls() + log()
        function("cuda.fill")(t[-1], 0); streams.launch(graph)
        result([lines, bool((to_host(t[-1]) == wanted).all())])
        """,
    )
    assert "heuristic" not in lines and "create" not in lines
    assert not any("forbidden" in line for line in lines)
    assert again


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ('algo="12"', "hexadecimal"),
        ("workload=small().to_json()", "no GEMM"),
        ('workload=gemm(activation="gelu").to_json()', "no GEMM"),
        ('workload=gemm("fprop", c=15, k=21, groups=3).to_json()', "no GEMM"),
    ],
)
def test_damaged_entries_are_refused(change: str, word: str, fakes: Fakes) -> None:
    text = run(
        fakes,
        f"""
        w = gemm()
        try: off(w, Candidate("cublaslt", "first_choice"), {change})
        except Exception as err: result(type(err).__name__ + ": " + str(err))
        else: result("accepted")
        """,
    )
    assert text.startswith("InvalidOption") and word in text


def test_no_algorithm_is_a_decline(fakes: Fakes) -> None:
    reason = run(
        fakes,
        "result(backend.propose(gemm(), current_device()).reason)",
        FAKE_CUBLASLT_ALGOS="0",
    )
    assert reason == "cuBLASLt 13.10.0 has no algorithm"


def test_missing_library_is_named(fakes: Fakes, tmp_path: Any) -> None:
    alone = tmp_path / "libcudart.so.13"  # beside it there is none either
    shutil.copy(fakes.cuda, alone)
    kind, text = run(
        fakes,
        """
        try: backend.propose(gemm(), current_device())
        except Exception as err: result([type(err).__name__, str(err)])
        else: result(["found", ""])
        """,
        CONVOY_CUDART=str(alone),
        CONVOY_CUBLASLT=str(tmp_path / "none"),
    )
    if kind == "found":
        pytest.skip("cuBLASLt is on the library path of this machine")
    assert kind == "LibraryMissing"
    assert "libcublasLt.so.13" in text and "pip install" in text

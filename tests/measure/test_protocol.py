"""The timing routine on a stand-in for CUDA: measurements, failures, memory."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runtime"))

from support import Fakes, compile_fake

SETUP = """
from convoy.backends.base import Binary
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.measure import protocol
device = Device(name="Fake H200", l2_bytes=1 << 20)
blobs = kernel_blobs()
candidate = Candidate("kernel", "loops")
def measure(w, swizzle=0, programmatic=False, **options):
    entry = kernel_entry(w, blobs, swizzle=swizzle, programmatic=programmatic)
    return protocol.measure(w, candidate, Binary(entry, blobs), device, **options).to_json()
w = small(epilogue=Epilogue(bias=True, residual=True))
"""


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Fakes:
    return Fakes(tmp_path_factory.mktemp("fakes"))


def run(fakes: Fakes, code: str) -> Any:
    return fakes.run(SETUP + textwrap.dedent(code))


def test_all_times(fakes: Fakes) -> None:
    found, forbidden = run(
        fakes,
        """
        found = measure(w)
        result([found, [x for x in log() if "forbidden" in x]])
        """,
    )
    assert not forbidden
    assert found["error"] < 1e-6
    assert found["samples"] >= 3
    for name in ("kernel_us", "enqueue_us", "e2e_us"):
        assert found[name] > 0
        assert found[name.replace("_us", "_spread_us")] >= 0
    assert "cold_us" in found and "failure" not in found


@pytest.mark.parametrize("op", ["fprop", "dgrad", "wgrad", "matmul"])
def test_every_op_is_checked(op: str, fakes: Fakes) -> None:
    right = run(
        fakes,
        f"""
        op = {op!r}
        more = dict(h=1, w=1, r=1, s=1, padding=(0,) * 4) if op == "matmul" else {{}}
        result(measure(small(op, groups=1, **more), cold=False))
        """,
    )
    assert right["error"] < 1e-6


def test_what_is_wrong_is_a_failure(fakes: Fakes) -> None:
    cannot, wrong, unwritten, refuses = run(
        fakes, "result([measure(w, swizzle) for swizzle in (95, 96, 97, 99)])"
    )
    assert "launch refused" in cannot["failure"]
    assert "relative L2 error 1.0e-02 above 1e-05" in wrong["failure"]
    assert wrong["error"] == pytest.approx(0.01, rel=0.01)
    assert "inf" in unwritten["failure"] and "error" not in unwritten
    assert "swizzle 99" in refuses["failure"]
    assert not any("kernel_us" in found for found in (cannot, wrong, unwritten, refuses))


def test_a_kernel_that_starts_early_is_timed_as_a_link_too(fakes: Fakes) -> None:
    """Launches of a chain take three sets of tensors in turns."""
    plain, link, inputs = run(
        fakes,
        """
        plain = measure(w)
        protocol.release()
        link = measure(w, programmatic=True)
        problem = protocol._problem(w)
        sets = [problem.tensors, *problem.spare]
        result([plain, link, [[float(to_host(t).sum()) for t in own[:2]] for own in sets]])
        """,
    )
    assert "chained_us" not in plain
    assert link["chained_us"] > 0 and link["error"] < 1e-6
    assert len(inputs) == 3 and inputs[0] == inputs[1] == inputs[2]


def test_a_link_that_is_wrong_is_a_failure(fakes: Fakes, tmp_path: Path) -> None:
    """The stand-in adds to its first output when it is launched programmatically."""
    wrong = compile_fake(tmp_path, "fake_kernel.cc", "", "-DPROGRAMMATIC")
    code = "result([measure(w), measure(w, programmatic=True)])"
    right, failed = fakes.run(SETUP + code, FAKE_KERNEL=str(wrong))
    assert "failure" not in right
    assert "relative L2 error" in failed["failure"] and "kernel_us" not in failed


def test_slow_candidates_get_few_samples(fakes: Fakes) -> None:
    """Without a limit of time, so that the counts do not depend on how busy the machine is: the
    slow candidate sleeps for 2 ms, 20 times what the best one is taken to need."""
    fast, slow = run(
        fakes,
        """
        fast = measure(w, budget_ms=1e9)
        result([fast, measure(w, swizzle=98, best_us=100.0, budget_ms=1e9)])
        """,
    )
    assert slow["samples"] == 3 < fast["samples"]
    assert "cold_us" not in slow
    assert slow["kernel_us"] > 2000


def test_fresh_inputs_for_each_workload_and_memory_is_given_back(fakes: Fakes) -> None:
    same, different, freed = run(
        fakes,
        """
        def x(w):
            problem = protocol._problem(w)
            return to_host(problem.tensors[0])
        first, again = x(w), x(w)
        other = x(small(k=16))
        log(); protocol.release(); freed = [l for l in log() if "free" in l]
        result([bool((first == again).all()), bool((first != other).any()), len(freed)])
        """,
    )
    assert same and different
    assert freed == 3


def test_lost_gpu_ends_measuring(fakes: Fakes) -> None:
    text = run(
        fakes,
        """
        measure(w)
        cuda.fake_cuda_lose()
        try: measure(small(k=16))
        except RuntimeError as err: result(str(err))
        """,
    )
    assert "the GPU stopped working after kernel:loops" in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_inputs_are_what_the_reference_reads(dtype: str, fakes: Fakes) -> None:
    """Tensors larger than the random block, which is repeated over them."""
    equal = run(
        fakes,
        f"""
        from convoy.measure import dtypes, problem
        problem._BLOCK = 101
        seen = {{}}
        def sample(workload, operands, rng):
            seen.update(operands)
            return []
        problem.reference.sample = sample
        w = small(dtype={dtype!r}, out_dtype={dtype!r})
        made = problem.make_problem(w, np.random.default_rng(0))
        equal = []
        for (name, shape, dtype), tensor in zip(w.operand_shapes(), made.tensors):
            if name not in seen: continue
            stored = np.empty(shape, dtypes.STORAGE[dtype])
            function("cuda.copy")(tensor, tvm_ffi.from_dlpack(stored))
            values = seen[name](np.arange(stored.size)).reshape(shape)
            equal.append(bool((dtypes.decode(stored, dtype) == values).all() and values.std() > 0))
        result(equal)
        """,
    )
    assert equal == [True, True]


def test_getting_ready_touches_no_gpu_and_measuring_uses_it(fakes: Fakes) -> None:
    before, found, again, failure = run(
        fakes,
        """
        from convoy.errors import CompileFailed
        from convoy.tune.gpu_measurer import GpuMeasurer
        class Loops:
            def build(self, workload, candidate, device):
                if candidate.kernel != "loops": raise CompileFailed("no such kernel", "loops")
                return Binary(kernel_entry(workload, blobs), blobs)
        measurer = GpuMeasurer(["kernel"], cold=False)
        measurer._backends, measurer._device = {"kernel": Loops()}, device
        log()
        measurer.ready(w, candidate)
        before = log()
        found = measurer.measure(w, candidate, None).to_json()
        again = measurer.measure(small(k=16), candidate, None).to_json()  # was not made ready
        other = Candidate("kernel", "another")
        measurer.ready(w, other)
        result([before, found, again, measurer.measure(w, other, None).to_json()])
        """,
    )
    assert before == []
    assert found["error"] < 1e-6 and found["kernel_us"] > 0
    assert again["error"] < 1e-6
    assert failure["failure"].startswith("CompileFailed")

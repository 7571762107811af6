"""The placement benchmark without a GPU: what it keeps, compiles, compares and prints."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convoy.ir import objective

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
MODULES = (
    "bench_placement", "placement_cases", "placement_gpus", "placement_kernels",
    "placement_measure", "placement_plans", "placement_report",
)  # fmt: skip


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in (*MODULES, "networks"):  # other tests have modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    return SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})


def run(ms: list[float], later: list[float] | None = None) -> dict[str, Any]:
    """Samples of even rounds and of odd ones."""
    from statistics import median

    later = later or ms
    samples = [*ms, *later]
    return {
        "ms": median(samples), "spread_ms": (max(samples) - min(samples)) / 2,
        "samples": len(samples), "rounds": [ms, later, ms, later], "differs": 0.0,
    }  # fmt: skip


def graph_case(**runs: dict[str, Any]) -> dict[str, Any]:
    labels = {name.replace("_", "/", 1).replace("_x4", " x4"): r for name, r in runs.items()}
    return {
        "network": "net", "batch": 1, "plans": {}, "calls": {}, "native": {},
        "runs": {"graph": labels},
    }  # fmt: skip


def test_second_level_takes_another_plan_only_beyond_the_spread(scripts: Any) -> None:
    report = scripts.placement_report
    case = graph_case(
        cudnn_graph=run([1.00, 1.02]), exact_graph=run([0.90, 0.92]),
        exact_graph_x4=run([0.89, 0.915]),
    )  # fmt: skip
    assert report.mode_result(case, "graph").chosen == "exact/graph"
    case["runs"]["graph"]["exact/graph x4"] = run([0.80, 0.82])
    result = report.mode_result(case, "graph")
    assert result.chosen == "exact/graph x4" and result.best_single() == "cudnn/graph"
    assert result.gain("exact/graph") == pytest.approx(1.01 / 0.91)


def test_second_level_is_reported_by_rounds_it_did_not_choose_by(scripts: Any) -> None:
    """What was fast by chance while it chose is not what it is said to take."""
    case = graph_case(
        cudnn_graph=run([1.0, 1.01]), exact_graph=run([0.9, 0.91]),
        exact_graph_x4=run([0.7, 0.71], later=[0.95, 0.96]),
    )  # fmt: skip
    report = scripts.placement_report
    result = report.mode_result(case, "graph")
    assert result.chosen == "exact/graph x4"
    assert result.fair["exact/graph x4"] == pytest.approx(0.955)
    rows, lines = report.overview({"net N=1": case})
    assert rows[0][6] == f"{1.005 / 0.955:.3f}x" and len(lines) == 1
    case["runs"]["graph"]["cudnn-greedy/graph"] = run([1.1, 1.11])
    rows, (line,) = report.overview({"net N=1": case})
    assert rows[0][5] == f"{1.105 / 0.905:.3f}x" and "1.221x of one placed by convolution" in line
    assert rows[0][2] == "cudnn/graph", "what is placed by convolution is no single backend here"


def test_slower_than_a_single_backend_beyond_the_spread_is_named(scripts: Any) -> None:
    report = scripts.placement_report
    slow = graph_case(cudnn_graph=run([1.0, 1.01]), exact_graph=run([1.05, 1.06]))
    close = graph_case(cudnn_graph=run([1.0, 1.02]), exact_graph=run([1.005, 1.025]))
    _, (line,) = report.overview({"slow N=1": slow, "close N=1": close})
    assert line.endswith("more than the spread: slow N=1")


def test_prediction_is_the_sum_of_candidates_and_of_tvms_kernels(scripts: Any) -> None:
    figure = {"kernel_us": 5.0, "enqueue_us": 2.0, "e2e_us": 12.0}
    case = graph_case(exact_graph=run([0.01, 0.011]))
    call = ["pool7", [[[1, 8], "float16"]]]
    case["calls"] = {"exact/graph": [call, call]}
    case["native"] = {scripts.placement_cases.native_key(*call): {**figure, "kernel_us": 1.5}}
    choice = {"chosen": {"measurement": figure}}
    case["plans"] = {"exact/graph": {"plan": {"choices": [choice]}}}
    assert scripts.placement_report.predict(case)["graph"] == {"exact/graph": pytest.approx(8.0)}
    case["native"] = {}
    assert scripts.placement_report.predict(case)["graph"] == {}, "one figure is missing"


def test_kernels_inside_a_network_are_summed_by_backend(scripts: Any, tmp_path: Path) -> None:
    report = scripts.placement_report
    chosen = {"candidate": {"backend": "cudnn"}, "measurement": {"kernel_us": 4.0, "cold_us": 6.0}}
    case = graph_case(exact_graph=run([0.01, 0.011]))
    choices = [{"workload": {}, "chosen": chosen}, {"workload": {"op": "dgrad"}, "chosen": chosen}]
    case["plans"] = {"exact/graph": {"plan": {"choices": choices}}}
    calls = [["convoy_0_fprop", "", 4.5], ["pool", "", 2.0], ["convoy_1_dgrad", "", 5.0]]
    case["context"] = {"exact/graph": {"whole_us": 12.0, "calls": calls}, "x": {"failed": "lost"}}
    (sums,) = report.in_context(case).values()
    counted = 2 * (4.0 + 2.0 * objective.COLD_SHARE)
    assert sums == {"cudnn": [2, 9.5, 8.0, pytest.approx(counted)], "tvm": [1, 2.0, 0.0, 0.0]}
    kept = {"net N=1": {**case, "in_context": report.in_context(case), "flips": []}}
    text = report.markdown(kept)
    assert "| net N=1 | exact/graph | cudnn | 2 | 9.5 | 8.0 |" in text


def test_what_was_made_is_found_again(scripts: Any, tmp_path: Path) -> None:
    bench = scripts.bench_placement
    work = bench.Work(tmp_path / "work")
    for key in ("net_b N=8", "net_a N=64", "net_a N=8"):
        assert work.plans(key) is None
        work.keep_plans(key, {"tvm/any": {"plan": None}})
    again = bench.Work(tmp_path / "work")
    assert again.cases() == ["net_a N=8", "net_a N=64", "net_b N=8"]
    assert again.plans("net_a N=8") == {"tvm/any": {"plan": None}}
    module = work.module("net_a N=8", None, True, 1)
    assert (
        module != work.module("net_a N=8", None, True, 4) != work.module("net_b N=8", None, True, 4)
    )
    assert work.built(module) is None
    module.with_suffix(".json").write_text(json.dumps({"failed": "no compiler"}))
    assert work.built(module) == {"failed": "no compiler"}
    module.with_suffix(".json").write_text(json.dumps({"native": []}))
    assert work.built(module) is None, "its file is gone"
    module.write_bytes(b"elf")
    assert work.built(module) == {"native": []}


def test_a_group_that_crashes_does_not_take_the_others_along(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = scripts.bench_placement
    timed: list[list[str]] = []

    def process(command: list[str], **options: Any) -> Any:
        groups = json.loads(Path(command[-2]).read_text())
        assert options["env"]["CUDA_VISIBLE_DEVICES"] == "3" and command[-1] == "[4, 5]"
        timed.append([group["name"] for group in groups])
        for group in groups:
            if group["name"] == "second":
                return SimpleNamespace(returncode=-11)
            Path(group["out"]).write_text("{}")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(bench.subprocess, "run", process)
    args = argparse.Namespace(plans=None, ends=bench.time.monotonic() + 100, work=str(tmp_path))
    groups = [{"name": n, "out": str(tmp_path / f"{n}.json")} for n in ("first", "second", "third")]
    bench.run_groups(args, False, scripts.placement_gpus.Share("3", (4, 5)), groups)
    assert timed == [["first", "second", "third"], ["third"]]
    assert (tmp_path / "third.json").is_file() and not (tmp_path / "second.json").is_file()


def test_a_kernel_that_serves_most_is_compiled_first(scripts: Any) -> None:
    from convoy.backends.kernels.cutlass.family import cutlass_backend
    from convoy.ir.device import Device
    from convoy.ir.measurement import Measurement
    from convoy.ir.workload import Workload

    workloads = [Workload("fprop", 8, 14, 14, c, 64, 1, 1) for c in (64, 128, 256)]
    backend, records = cutlass_backend(), []
    shared = set.intersection(
        *({c.kernel.split(".")[0] for c in backend.propose(w, Device())} for w in workloads)
    )
    wide = sorted(shared)[0]
    for workload in workloads:
        for candidate in backend.propose(workload, Device()):
            us = 4.0 if candidate.kernel.split(".")[0] == wide else 5.0
            figure = Measurement(kernel_us=us, e2e_us=us + 8)
            records.append(
                SimpleNamespace(workload=workload, candidate=candidate, measurement=figure)
            )
    kernels = scripts.placement_kernels
    chosen = kernels.worth_compiling(kernels.recorded(records, set(workloads)), 3)
    assert chosen[0].name.startswith(wide) and len(chosen) == 1, "no other one saves anything"
    assert kernels.worth_compiling(kernels.recorded(records, set()), 3) == []


def test_kernels_for_workloads_without_records_are_chosen_by_prediction(
    scripts: Any, tmp_path: Path
) -> None:
    from convoy.cost.model import RandomCost
    from convoy.ir.device import Device
    from convoy.ir.workload import Workload

    kernels, workload = scripts.placement_kernels, Workload("fprop", 8, 14, 14, 64, 64, 1, 1)
    known = list(kernels.predicted(RandomCost(), [workload], Device()))
    chosen = kernels.worth_compiling(known, 8)
    fastest = min(known, key=lambda k: k[2].kernel_us)
    assert fastest[1] in chosen and len(chosen) <= 2, "one for each figure serves one workload"
    kernels.keep(tmp_path / "kernels.json", chosen)
    assert kernels.kept(tmp_path / "kernels.json") == chosen


def test_what_is_not_asked_for_is_not_measured(
    scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convoy.backends.base import Backend, Binary
    from convoy.ir.candidate import Candidate
    from convoy.ir.device import Device
    from convoy.ir.measurement import Measurement
    from convoy.ir.workload import Workload
    from convoy.measure import protocol
    from convoy.records import environment

    class Other(Backend):
        name = "other"

        def accepts(self, workload: Workload, device: Device) -> None:
            return None

        def propose(self, workload: Workload, device: Device) -> list[Candidate]:
            return []

        def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
            return Binary({}, {})

    timed: list[str] = []

    def measure(workload: Workload, candidate: Candidate, *_: Any, **__: Any) -> Measurement:
        timed.append(candidate.kernel)
        return Measurement(kernel_us=2.0) if candidate.kernel != "b" else Measurement(failure="no")

    here = dataclasses.replace(environment.current(), gpu="some GPU", sm_count=132)
    monkeypatch.setattr(environment, "current", lambda *_: here)
    monkeypatch.setattr(protocol, "measure", measure)
    workload = Workload("fprop", 1, 14, 14, 64, 64, 1, 1)
    asked = (("other", "a"), ("other", "b"), ("cudnn", "c"))
    pairs = [(workload, Candidate(*names)) for names in asked]
    args = argparse.Namespace(
        compile=False, again=False, records=str(tmp_path / "records.jsonl"),
        device={"name": "some GPU"}, ends=scripts.bench_placement.time.monotonic() + 60,
    )  # fmt: skip
    assert scripts.placement_measure.measure(args, pairs, [Other()]) == 1
    assert scripts.placement_measure.measure(args, pairs, [Other()]) == 1 and timed == ["a", "b"]
    args.again = True
    assert scripts.placement_measure.measure(args, pairs, [Other()]) == 1
    assert timed == ["a", "b", "a", "b"], "known figures are taken again"


def test_every_gpu_has_its_share_of_work_and_cores(
    scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = scripts.placement_gpus
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    monkeypatch.setattr(gpus.os, "sched_getaffinity", lambda _: set(range(8)))
    found = gpus.on_each(lambda share, items: (share.gpu, share.cores, items), range(5))
    assert found == [("0", (0, 1, 2, 3), [0, 2, 4]), ("2", (4, 5, 6, 7), [1, 3])]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.on_each(lambda share, items: (share.gpu, len(share.cores), items), "ab") == [
        ("", 8, ["a", "b"])
    ]


def test_plans_of_one_network_are_compiled_together(scripts: Any) -> None:
    bench = scripts.bench_placement
    jobs = [{"network": n, "batch": 1, "i": i} for i in range(bench.CHUNK + 1) for n in "ab"]
    assert bench.chunks(jobs, len(jobs)) == [[job] for job in jobs]
    found = bench.chunks(jobs, 2)
    assert sorted(map(len, found)) == [1, 1, bench.CHUNK, bench.CHUNK]
    assert all(len({job["network"] for job in chunk}) == 1 for chunk in found)

"""Tuning loops as scripts for TVM 0.18 have them, on a GPU that is simulated and on a CPU."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.backends.cudnn import cudnn_version
from convoy.errors import InvalidOption, RemovedFromTvm
from convoy.ir.device import Device
from convoy.records.store import RecordStore
from convoy.relay import tvm018 as tvm
from convoy.relay.build import from_attributes
from convoy.relay.tuning import tasks
from convoy.relay.tvm018 import auto_scheduler, autotvm
from convoy.relay.tvm018 import meta_schedule as ms
from convoy.relay.tvm018.autotvm.graph_tuner import DPTuner
from convoy.relay.tvm018.autotvm.tuner import RandomTuner, XGBTuner
from convoy.tune import autotune as module
from convoy.tune.measurer import Spec

needs_cudnn = pytest.mark.skipif(not cudnn_version(), reason="cuDNN is not installed")


@pytest.fixture
def network() -> Any:
    x = relay.var("x", shape=(1, 64, 14, 14))
    y = relay.nn.relu(relay.nn.conv2d(x, relay.var("w", shape=(64, 64, 3, 3)), padding=(1, 1)))
    y = relay.nn.conv2d(y, relay.var("v", shape=(128, 64, 1, 1)))
    y = relay.nn.dense(
        relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)), relay.var("d", shape=(16, 128))
    )
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An H200, as far as tuners can tell, on which cuDNN alone has kernels."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    monkeypatch.setattr(module, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(tasks, "LIBRARIES", ("cudnn",))
    options: dict[str, object] = {"log": str(tmp_path / "measured.log"), "gpu": Device().name}
    spec = Spec("tests.tune.fakes:FakeMeasurer", options)
    monkeypatch.setattr(module, "autotune", functools.partial(module.autotune, spec=spec))


@needs_cudnn
def test_autotvm_on_a_gpu(network: Any, gpu: None, tmp_path: Path, capfd: Any) -> None:
    """Tasks are tuned into a log, the best of which relay.build reads."""
    log, best = tmp_path / "net.log.tmp", tmp_path / "net.log"
    conv = (relay.op.get("nn.conv2d"),)
    found = autotvm.task.extract_from_program(network["main"], {}, "cuda", ops=conv)
    assert found and all(t.workload.op == "fprop" for t in found)
    everything = autotvm.task.extract_from_program(network, None, "cuda")
    assert set(found) < set(everything)
    assert len(found[0].config_space) > 4 and found[0].flop == 2 * 14 * 14 * 64 * 64 * 9
    option = autotvm.measure_option(autotvm.LocalBuilder(timeout=10), autotvm.LocalRunner(number=4))
    told = []
    for i, task in enumerate(found):
        tuner = RandomTuner(task)
        if log.exists():
            tuner.load_history(autotvm.record.load_from_file(log))
        tuner.tune(
            n_trial=4,
            early_stopping=100,
            measure_option=option,
            callbacks=[
                autotvm.callback.progress_bar(4, prefix=f"[Task {i}]"),
                autotvm.callback.log_to_file(str(log)),
                lambda tuner, inputs, results: told.append((tuner, inputs[0], results[0])),
            ],
        )
    assert len(told) == 4 * len(found) == len(list(autotvm.record.load_from_file(log)))
    assert all(given.task is tuner.task and result.error_no == 0 for tuner, given, result in told)
    assert "Progress: (4/4)" in capfd.readouterr().err
    autotvm.record.pick_best(log, str(best))
    fastest = {r.workload: (r.measurement.kernel_us or 0) * 1e-6 for r in RecordStore([best])}
    assert fastest == {
        task.workload: min(r.costs[0] for _, i, r in told if i.task == task) for task in found
    }
    options: dict[str, Any] = {}
    with autotvm.apply_history_best(str(best)):
        from_attributes(relay.transform.InferType()(network), "cuda", options)
    assert options["records"] == best
    DPTuner(network["main"], {"x": (1, 64, 14, 14)}, log, conv, "cuda").write_opt_sch2record_file(
        tmp_path / "graph.log"
    )
    with autotvm.apply_graph_best(tmp_path / "graph.log"):
        pass


@needs_cudnn
def test_auto_scheduler_on_a_gpu(network: Any, gpu: None, tmp_path: Path) -> None:
    """The trials are those of the whole network."""
    log = tmp_path / "network.json"
    found, weights = auto_scheduler.extract_tasks(network["main"], {}, tvm.target.Target("cuda"))
    assert len(found) == len(weights) and "fprop" in found[0].workload_key
    assert "x: (1, 14, 14, 64) float32" in found[0].compute_dag
    context = auto_scheduler.LocalRPCMeasureContext(repeat=1, min_repeat_ms=300, timeout=10)
    option = auto_scheduler.TuningOptions(
        num_measure_trials=6,
        runner=context.runner,
        measure_callbacks=[auto_scheduler.RecordToFile(str(log))],
    )
    auto_scheduler.TaskScheduler(found, weights).tune(option)
    first = len(RecordStore([log]))
    assert 6 <= first < 6 + len(found)  # the last round ends
    auto_scheduler.TaskScheduler(found, weights, load_log_file=str(log)).tune(option)
    assert len(RecordStore([log])) > first  # others than those of the log


@needs_cudnn
def test_meta_schedule_on_a_gpu(network: Any, gpu: None, tmp_path: Path) -> None:
    database = ms.relay_integration.tune_relay(
        network, {}, "cuda", tmp_path, max_trials_global=3, strategy="evolutionary"
    )
    assert len(RecordStore([database.path])) >= 3
    with ms.Profiler() as profiler:  # of the installed TVM
        pass
    assert "Total" in str(profiler.table())
    options: dict[str, Any] = {}
    with database:
        from_attributes(relay.transform.InferType()(network), "cuda", options)
    assert options["records"] == database.path


def test_on_a_cpu_nothing_is_measured(network: Any, tmp_path: Path) -> None:
    """Loops run to their end with a warning, and what they compile computes the same."""
    log = tmp_path / "cpu.log"
    values = {
        p.name_hint: np.random.default_rng(0).random(p.checked_type.concrete_shape, "float32")
        for p in relay.transform.InferType()(network)["main"].params
    }
    [task, *_] = autotvm.task.extract_from_program(network, {}, "llvm")
    assert len(task.config_space) == 1
    with pytest.warns(UserWarning, match="kernels for a CPU are TVM's own"):
        XGBTuner(task).tune(10, callbacks=[autotvm.callback.log_to_file(str(log))])
    autotvm.record.pick_best(str(log), str(tmp_path / "best.log"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with autotvm.apply_history_best(str(tmp_path / "best.log")):
            tuned = relay.build(network, "llvm")
    with pytest.warns(UserWarning, match="kernels for a CPU"):
        database = ms.relay_integration.tune_relay(network, {}, "llvm", tmp_path, 8)
    compiled = ms.relay_integration.compile_relay(database, network, "llvm", {})
    results = []
    for lib in (tuned, compiled):
        run = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
        run.run(**values)
        results.append(run.get_output(0).numpy())
    np.testing.assert_array_equal(*results)


def test_what_tuners_refuse(network: Any, tmp_path: Path) -> None:
    [task, *_] = autotvm.task.extract_from_program(network, {}, "llvm")
    runner = autotvm.RPCRunner("1080ti", host="127.0.0.1", port=9190)
    with pytest.raises(InvalidOption, match="RPCRunner"):
        XGBTuner(task).tune(4, autotvm.measure_option(autotvm.LocalBuilder(), runner))
    with pytest.raises(InvalidOption, match="RPCRunner"):
        auto_scheduler.TaskScheduler([task]).tune(
            auto_scheduler.TuningOptions(4, runner=auto_scheduler.RPCRunner("key", "host", 1))
        )
    uses: tuple[Callable[[], Any], ...] = (
        lambda: autotvm.template("conv2d"),
        lambda: autotvm.record.encode(None, None),
        lambda: autotvm.tuner.Tuner(task),
        lambda: auto_scheduler.SearchTask(func=None, args=(), target="llvm"),
        lambda: ms.tune_relay_workloads(None, "llvm"),
    )
    for use in uses:
        with pytest.raises(RemovedFromTvm, match="convoy tune"):
            use()
    log = tmp_path / "tvm.log"
    log.write_text(
        '{"input": ["cuda", "conv2d_nchw.cuda", [], {}], "config": {}, "version": 0.2}\n'
    )
    with pytest.warns(UserWarning, match="no record of Convoy"):
        context = autotvm.apply_history_best(str(log))
    options: dict[str, Any] = {}
    with context:
        from_attributes(relay.transform.InferType()(network), "cuda", options)
    assert "records" not in options

"""Models through the PyTorch door beside PyTorch, on the CPU."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bench_models
import readme_tables
from harness import model_systems, models, own_models, torch_inference
from harness.model_systems import Overdue, System
from harness.models import Name
from harness.timing import Timing


def test_names_of_models() -> None:
    assert Name.parse("own.unet@256") == Name("own", "unet", 256)
    assert Name.parse("timm.vit_tiny_patch16_224") == Name("timm", "vit_tiny_patch16_224")
    for text in ("resnet50", "keras.resnet50", "own.", "own.unet@", "own.unet@0", "own.unet@big"):
        with pytest.raises(ValueError, match=r"expected one of torchvision\.NAME"):
            Name.parse(text)
    with pytest.raises(ValueError, match=r"own\.vgg; expected one of unet"):
        models.make("own.vgg")
    assert len({Name.parse(text).short for text in models.FAMILIES}) == len(models.FAMILIES) == 27


def test_systems_and_variants() -> None:
    assert System.parse("autotune").label == "max-autotune"
    text = "convoy[CONVOY_IN_PLACE=0,streams=1,kernels=all,backends=('cudnn','tvm'),budget=None]"
    system = System.parse(text)
    assert (system.kind, system.label) == ("convoy", text)
    assert system.variables == {"CONVOY_IN_PLACE": "0"}
    backends = ("cudnn", "tvm")
    options = {"streams": 1, "kernels": "all", "backends": backends, "budget": None}
    assert system.options == options
    for wrong in ("xla", "eager[streams=1]", "convoy[streams]", "convoy[]"):
        with pytest.raises(ValueError, match="expected"):
            System.parse(wrong)


def test_own_models_have_sane_results() -> None:
    with torch.no_grad():
        net, shape = models.make("own.yolo@32")
        maps = net(torch.randn(2, *shape))
        assert [tuple(y.shape) for y in maps] == [(2, 144, n, n) for n in (4, 2, 1)]
        assert all(0.01 < y.std() < 100 for y in maps), "statistics of batch norms"
        net, again = (models.make("own.audio@2000")[0] for _ in range(2))
        assert all(map(torch.equal, net.state_dict().values(), again.state_dict().values()))
        y = models.settled(own_models.UNet(widths=(4, 8, 16)), (3, 16, 16))(
            torch.randn(2, 3, 16, 16)
        )
        assert y.shape == (2, 2, 16, 16) and 0.01 < y.std() < 100


def test_what_begins_at_zero_is_not_hidden() -> None:
    net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Linear(4, 4))
    nn.init.zeros_(net[1].weight)
    nn.init.zeros_(net[2].weight)
    net.scale = nn.Parameter(torch.full((3,), 1e-6))
    models.settled(net, (3, 4, 4))
    assert net[1].weight.all() and net[2].weight.any() and net.scale.abs().max() > 1e-3
    assert not net[1].training


def test_images_of_settling_leave_nothing_cached() -> None:
    """A bias that attention keeps from its first call would stay in float32."""

    class Caching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.cache = nn.BatchNorm2d(3), list[torch.Tensor]()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.cache.append(x.mean())
            return self.norm(x + 5)

    net = models.settled(Caching(), (3, 4, 4))
    assert not net.cache and not net.training
    assert net.norm.running_mean.mean() == pytest.approx(5, abs=0.2)


def test_models_of_torchvision() -> None:
    pytest.importorskip("torchvision")
    with torch.no_grad():
        net, shape = models.make("torchvision.lraspp_mobilenet_v3_large@64")
        assert net(torch.randn(1, *shape)).shape == (1, 21, 64, 64)
        net, shape = models.make("torchvision.mobilenet_v3_small")
        assert shape == (3, 224, 224)
        assert torch_inference.folded(net)[1], "batch norms"
    with pytest.raises(ValueError, match="torchvision has no model 'resnet49'"):
        models.make("torchvision.resnet49")


def test_batch_norms_that_cannot_be_folded_stay() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x) if x.sum() > 0 else x

    net = Branch().eval()
    copy, complete = torch_inference.folded(net)
    x = torch.randn(1, 3, 2, 2)
    assert not complete and copy is not net and torch.equal(copy(x), net(x))


def test_errors_are_judged_by_those_of_pytorch() -> None:
    want = [torch.ones(4, dtype=torch.float64)]
    assert model_systems.relative_error([torch.full((4,), 1.5)], want) == pytest.approx(0.5)
    nan = model_systems.relative_error([torch.tensor([1.0, 1.0, 1.0, float("nan")])], want)
    peer = {"precision": "float16", "error": 0.01, "most": 0.031}
    model_systems.check(0.03, [peer])
    for wrong in (0.04, nan):
        with pytest.raises(AssertionError, match=r"of PyTorch 0\.01 in float16"):
            model_systems.check(wrong, [peer])
    systems = [System.parse("convoy"), System.parse("convoy[precision=tf32]")]
    assert model_systems.precisions(systems, "float32") == {"float32", "float16"}


def test_a_disturbed_time_says_so() -> None:
    calm = Timing([[1.0, 1.0, 1.01, 1.0]], [])
    assert model_systems.cells(calm, "ms") == {"ms": 1.0, "spread": 0.005}
    wide = Timing([[1.0, 1.0, 1.3, 1.4]], [])
    assert model_systems.cells(wide, "ms")["disturbed"]
    assert model_systems.cells(wide, "call_ms") == {"call_ms": 1.15}


def test_a_build_that_does_not_end_is_given_up() -> None:
    with pytest.raises(Overdue, match=r"did not end within 0\.05 s"), model_systems.limit(0.05):
        time.sleep(60)
    with model_systems.limit(60):
        pass


def test_autotuning_may_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_systems, "build", lambda *_: time.sleep(60))
    limits = {"convoy": 0.05, "autotune": 0.05}
    rows = model_systems.work(
        "own.audio@2000", 1, list(limits), "float32", "cpu", seconds=0.01, limits=limits,
        caches=str(tmp_path),
    )  # fmt: skip
    assert rows == [
        {"system": "convoy", "failed": "Overdue: did not end within 0.05 s"},
        {"system": "max-autotune", "skipped": "Overdue: did not end within 0.05 s"},
    ]


def cell(**row: Any) -> dict[str, Any]:
    return {"model": "own.audio", "batch": 1, "system": "convoy", "ms": 1.0, **row}


def test_a_run_is_resumed_where_it_ended(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = [cell(), cell(system="eager"), cell(batch=8), cell(batch=8, system="eager", failed="")]
    out.write_text(json.dumps({"rows": [*done, cell(model="own.yolo")]}))
    args = argparse.Namespace(out=str(out), precision="float16")
    cases = [("own.audio", 1), ("own.audio", 8), ("own.unet", 1)]
    todo, rows, layers = bench_models.earlier(args, cases, ["convoy", "eager"])
    assert todo == cases[1:] and layers == []
    assert rows == [*done[:2], cell(model="own.yolo")]
    args.precision = "bfloat16"
    assert bench_models.earlier(args, cases, ["convoy"])[0] == cases


def test_a_model_from_its_name_to_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the processes of the script; what fails has a row, and the exit code tells."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # PyTorch's threads and TVM's wait for each other
    out = tmp_path / "results" / "cpu" / "out.json"
    shared = ["--models", "own.audio@2000", "--batches", "2", "--precision", "float32"]
    shared += ["--device", "cpu", "--seconds", "0.01", "--jobs", "2", "--out", str(out)]
    systems = ["--systems", "convoy", "convoy[streams=0]", "eager"]
    assert bench_models.main([*shared, *systems, "--report", "layers"]) == 1
    rows = {row["system"]: row for row in json.loads(out.read_text())["rows"]}
    assert list(rows) == ["convoy", "convoy[streams=0]", "eager"]
    convoy, eager = rows["convoy"], rows["eager"]
    assert {"model", "batch", "ms", "spread", "error", "build_s", "call_ms"} <= set(convoy)
    assert convoy["ms"] > 0 and convoy["error"] < 1e-3 and eager["error"] < 1e-3
    assert "InvalidOption" in rows["convoy[streams=0]"]["failed"]
    layers = json.loads((out.parent / "out-layers.json").read_text())["layers"]
    assert {layer["system"] for layer in layers} == {"convoy"} and layers[0]["us"] > 0
    printed = capsys.readouterr().out
    assert "times convoy's ms in the geometric mean of 1" in printed
    assert "own.audio@2000, float32, N=2, convoy[streams=0]: InvalidOption" in printed
    (results,) = readme_tables.read(out.parent)
    assert "| own.audio@2000, float32 | 2 |" in readme_tables.table(results)

"""``convoy bench`` on files of every kind that it reads, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from convoy import errors
from convoy.bench import models, page, systems
from convoy.bench.layers import watched
from convoy.bench.result import Result, Row
from convoy.cli.bench import model_and_batches, show
from convoy.cli.main import app
from convoy.report.layers import Layer

RELAY = """#[version = "0.0.5"]
def @main(%data: Tensor[(2, 8, 12, 12), float32], %stem_weight: Tensor[(16, 8, 3, 3), float32],
          %body_weight: Tensor[(16, 16, 3, 3), float32]) {
  %0 = nn.relu(nn.conv2d(%data, %stem_weight, padding=[1, 1, 1, 1], channels=16,
                         kernel_size=[3, 3]));
  nn.max_pool2d(nn.conv2d(%0, %body_weight, padding=[1, 1, 1, 1], channels=16,
                          kernel_size=[3, 3]), pool_size=[2, 2], strides=[2, 2])
}
"""


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


QUICK = ("--target", "llvm", "--seconds", "0.02")


def test_relay_at_two_batch_sizes(tmp_path: Path) -> None:
    model, found, html = (tmp_path / name for name in ("net.relay", "bench.json", "bench.html"))
    model.write_text(RELAY)
    options = ("--out", found, "--html", html, "--against", "onnxruntime")
    printed = run("bench", model, "--batch", 1, 3, *QUICK, *options)
    assert "Where the time goes at batch 3" in printed and "onnxruntime reads ONNX" in printed
    assert max(map(len, printed.splitlines())) <= 80
    data = json.loads(found.read_text())
    mine = [row for row in data["rows"] if row["system"] == "convoy"]
    assert [row["batch"] for row in mine] == [1, 3] and data["target"] == "llvm"
    for row in mine:
        assert 0 < row["p50_ms"] <= row["p99_ms"] and row["per_s"] > 0 and row["build_s"] > 0
        names = {layer["name"] for layer in row["layers"]}
        assert {"stem", "body"} <= names and any("max pool2d" in name for name in names)
        assert sum(layer["share"] for layer in row["layers"]) == pytest.approx(1.0)
        times = [layer["us"] for layer in row["layers"]]
        assert times == sorted(times, reverse=True)
    assert 'data-batch="3"' in html.read_text()


def test_compiled_module(tmp_path: Path) -> None:
    model, module = tmp_path / "net.relay", tmp_path / "net.so"
    model.write_text(RELAY)
    run("build", model, "--target", "llvm", "-o", module)
    assert "stem" in run("bench", module, *QUICK)
    with pytest.raises(errors.InvalidOption, match="built for 2"):
        run("bench", module, "--batch", 4)
    with pytest.raises(errors.InvalidOption, match="module of float32"):
        run("bench", module, "--precision", "float16")
    with pytest.raises(errors.InvalidOption, match="--shape for a module"):
        run("bench", module, "--shape", "data=2,3,8,8")


def test_open_sizes_of_an_onnx_model(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    helper, path = onnx.helper, tmp_path / "net.onnx"
    ends = [helper.make_tensor_value_info(name, 1, ["N", "T"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)
    with pytest.raises(errors.DynamicShape, match="--shape x="):
        run("bench", path, *QUICK)
    assert "net on" in run("bench", path, "--shape", "x=2,3", *QUICK)


def test_onnx_against_onnxruntime(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the onnx extra")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(8, 3, 3, 3)).astype("float32")
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "net", [value("x", 1, ["N", 3, 16, 16])], [value("y", 1, ["N", 8, 16, 16])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, tmp_path / "net.onnx")
    out = tmp_path / "bench.json"
    run("bench", tmp_path / "net.onnx", "--batch", "2,5", *QUICK, "--against", "onnxruntime,torch",
        "--out", out)  # fmt: skip
    rows = json.loads(out.read_text())["rows"]
    peers = [row for row in rows if row["system"] == "onnxruntime"]
    assert [row["batch"] for row in peers] == [2, 5]
    assert all(row["error"] < 1e-5 and row["p50_ms"] > 0 for row in peers)
    assert all("torch.export" in row["skipped"] for row in rows if row["system"] == "torch")


def test_exported_program_against_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
            self.head = torch.nn.Linear(8, 5)

        def forward(self, x):
            return self.head(self.body(x).mean((2, 3)))

    program = torch.export.export(Net().eval(), (torch.zeros(2, 3, 12, 12),))
    torch.export.save(program, tmp_path / "net.pt2")
    out = tmp_path / "bench.json"
    printed = run(
        "bench", tmp_path / "net.pt2", *QUICK, "--against", "torch", "--out", out, "--json"
    )
    assert printed == out.read_text() + "\n"
    mine, peer = json.loads(printed)["rows"]
    assert (mine["batch"], peer["system"]) == (2, "torch")
    assert peer["error"] < 1e-5 and peer["p50_ms"] > 0
    assert {"body.0", "head"} <= {layer["name"] for layer in mine["layers"]}
    with pytest.raises(errors.InvalidOption, match=r"exported with 2.*torch\.export\.Dim"):
        models.read(tmp_path / "net.pt2", batch=4)
    sizes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    program = torch.export.export(Net().eval(), (torch.zeros(2, 3, 12, 12),), dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "open.pt2")
    shape = models.read(tmp_path / "open.pt2", batch=5)["main"].params[0].ty.shape
    assert [int(size) for size in shape.values] == [5, 3, 12, 12]
    with pytest.raises(errors.DynamicShape, match="--batch"):
        models.read(tmp_path / "open.pt2")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("a.onnx", "b.onnx"), "2 models"),
        (("8",), "0 models"),
        (("a.onnx", "--batch", "0"), "--batch 0"),
        (("a.onnx", "--batch", "many"), "--batch many"),
        (("a.onnx", "--against", "tensorrt"), "torch, torch.compile, onnxruntime"),
        (("absent.pt2",), "does not exist"),
        (("absent.pt2", "--end", "y"), "--end for an exported program"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], match: str) -> None:
    with pytest.raises(errors.InvalidOption, match=match):
        run("bench", *arguments, "--target", "llvm")


def test_batch_sizes_in_any_place() -> None:
    expected = (Path("m.onnx"), [1, 8, 64])
    assert model_and_batches(["m.onnx", "8", "64"], ["1"]) == expected
    assert model_and_batches(["8", "64", "m.onnx"], ["1"]) == expected
    assert model_and_batches(["m.onnx"], ["1,8", "64"]) == expected


class Watched:
    """A session whose calls take as long as a list says."""

    def __init__(self, calls: list[tuple[str, float]]) -> None:
        self.calls, self.now, self.watch = calls, 0.0, None

    def observe(self, watch):  # type: ignore[no-untyped-def]
        self.watch = watch

    def run(self) -> None:
        for name, seconds in self.calls:
            if self.watch:
                self.watch(None, name, True, None)
            self.now += seconds
            if self.watch:
                self.watch(None, name, False, None)


CALLS = [("vm.builtin.alloc", 1.0), ("fused_conv2d_add", 3e-6), ("pool", 1e-6), ("matmul1", 4e-6)]


def test_layers_on_the_cpu_have_the_models_names() -> None:
    session = Watched(CALLS)
    found = watched(session, ("stem", "head"), clock=lambda: session.now)  # type: ignore[arg-type]
    assert [(x.name, round(x.us, 3), round(x.share, 3)) for x in found] == [
        ("head", 4.0, 0.5), ("stem", 3.0, 0.375), ("pool", 1.0, 0.125)
    ]  # fmt: skip


def test_layers_whose_number_differs_have_no_names_of_others() -> None:
    session = Watched(CALLS)
    found = watched(session, ("stem",), clock=lambda: session.now)  # type: ignore[arg-type]
    assert {x.name for x in found} == {"matmul", "conv2d add", "pool"}


def test_names_are_text_in_page_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "<script>\x1b[2J"
    layers = tuple(Layer(evil, "mine", 2.0, 0.1, None, True, evil) for _ in range(40))
    row = Row("convoy", 1, "float16", 1.0, 2.0, 100.0, 0.5, 1 << 20, 3.0, 9, layers=layers)
    result = Result("net", "cuda", "GPU", (row, Row("torch", 1, skipped=evil)))
    text = page.render(result)
    assert "<script>\x1b" not in text and text.count("data-layer") == 30
    show(result)
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "and 30 more operations" in printed


def test_error_of_outputs() -> None:
    ones = np.ones((2, 3), "float16")
    assert systems.relative_error([ones], [ones]) == 0.0
    assert systems.relative_error([ones * 1.5], [ones]) == pytest.approx(0.5)
    assert systems.relative_error([ones], [ones[:1]]) is None
    assert np.isnan(systems.relative_error([ones, ones * np.nan], [ones, ones]))

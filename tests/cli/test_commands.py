"""``convoy place``, ``build``, ``run`` and ``trace`` on files of every kind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from convoy import errors, relay
from convoy.cli.main import app, main
from convoy.ir.plan import Plan

TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(2, 8, 12, 12), float32], %w: Tensor[(16, 8, 3, 3), float32],
          %b: Tensor[(16), float32]) {
  nn.relu(nn.bias_add(nn.conv2d(%data, %w, padding=[1, 1, 1, 1], channels=16,
                                kernel_size=[3, 3]), %b))
}
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "net.relay"
    path.write_text(TEXT)
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_place_prints_a_plan_and_writes_it(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    printed = run("place", text, "--backends", "cutlass,tvm", "--out", out)
    assert "cutlass" in printed and "objective graph" in printed
    assert "predicted measurements" in printed and "without a timing" not in printed
    printed = run("place", text, "--backends", "cutlass,tvm", "--costs", "recorded")
    assert "without a timing: 1 of 1 (w)" in printed
    plan = Plan.loads(out.read_text())
    assert plan.backends() == {"cutlass": 1}
    assert plan.choices[0].workload.epilogue.name == "bias_relu"
    same = Plan.loads(run("place", text, "--backends", "cutlass,tvm", "--json"))
    assert same == plan


def test_place_takes_batch_and_precision(text: Path) -> None:
    options = ("--batch", 5, "--precision", "bfloat16", "--backends", "cutlass", "--json")
    workload = Plan.loads(run("place", text, *options)).choices[0].workload
    assert (workload.n, workload.dtype) == (5, "bfloat16")


def test_numbers_and_files_that_do_not_fit(text: Path) -> None:
    with pytest.raises(errors.InvalidOption, match="batch 0; expected a number from 1"):
        run("place", text, "--batch", 0)
    with pytest.raises(
        errors.InvalidOption, match=r"convoy build .*net\.relay -o net\.so makes one"
    ):
        run("run", text)
    with pytest.raises(errors.InvalidOption, match="seconds=nan"):
        run("bench", text, "--seconds", "nan")


@pytest.mark.parametrize(
    "arguments",
    [("bench", "--out"), ("bench", "--html"), ("run", "--outputs"), ("tune", "--write-list")],
)
def test_files_are_checked_before_the_work(
    arguments: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model does not even exist."""
    monkeypatch.chdir(tmp_path)
    command, option = arguments
    with pytest.raises(errors.CacheUnwritable, match="there is no folder"):
        run(command, "net.relay", option, "nowhere/file")


def test_shipped_records_decide_for_a_network_that_they_hold(tmp_path: Path) -> None:
    from convoy.relay.testing import resnet

    module, _ = resnet.get_workload(batch_size=8, num_layers=18)
    path = tmp_path / "resnet18.relay"
    path.write_text(module.astext())
    totals = {}
    for objective, search in (("graph", "greedy"), ("graph", "exact"), ("sync", "greedy")):
        options = ("--objective", objective, "--search", search, "--json")
        plan = Plan.loads(run("place", path, *options))
        assert plan.source == "recorded" and sum(plan.backends().values()) == 22
        assert all(choice.chosen.measurement.ok for choice in plan.choices)
        totals[objective, search] = plan
    graph, sync = totals["graph", "greedy"], totals["sync", "greedy"]
    assert graph.total_us("graph") < sync.total_us("graph")
    assert sync.total_us("sync") < graph.total_us("sync")
    assert len(graph.backends()) >= 2 and graph.differences(sync)


def test_place_explains_itself(text: Path) -> None:
    options = ("--backends", "cutlass,depthwise", "--costs", "predicted", "--search", "exact")
    printed = run("place", text, *options, "--explain")
    assert "chosen" in printed and "declined" in printed and "under sync" in printed
    assert "objective graph counts kernel_us" in printed
    (op,) = json.loads(run("place", text, *options, "--explain", "--json"))["ops"]
    assert op["winner"]["backend"] == "cutlass" and op["losers"]
    assert [decline["backend"] for decline in op["declines"]] == ["depthwise"]
    assert sum(fusion["chosen"] for fusion in op["fusions"]) == 1
    plan = Plan.loads(run("place", text, *options, "--json"))
    assert plan.source == "predicted"


def test_unknown_search_is_refused(text: Path) -> None:
    with pytest.raises(errors.InvalidOption, match="greedy, exact"):
        run("place", text, "--search", "random")


def test_exact_search_without_figures_places_each_by_itself(text: Path) -> None:
    exact, greedy = (
        run("place", text, "--backends", "cutlass", "--search", search, "--costs", "recorded")
        for search in ("exact", "greedy")
    )
    assert "(no measurements" in exact and "--costs predicted" in exact and exact == greedy


def test_what_no_backend_takes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grouped.relay"
    grouped = TEXT.replace("(16, 8, 3, 3)", "(16, 2, 3, 3)").replace(
        "channels=16", "groups=4, channels=16"
    )
    path.write_text(grouped)
    printed = run("place", path, "--backends", "cutlass,tvm")
    assert max(map(len, printed.splitlines())) <= 80
    words = " ".join(printed.split())
    assert "left to TVM's own kernels: w: fprop" in words and "cutlass: groups = 4" in words


def test_build_and_run(text: Path, tmp_path: Path) -> None:
    module = relay.parse(TEXT)
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(16, 8, 3, 3)), "b": rng.normal(size=16)}
    np.savez(tmp_path / "params.npz", **{k: v.astype("float32") for k, v in params.items()})
    (tmp_path / "net.json").write_text(relay.save_json(module))
    x = rng.normal(size=(2, 8, 12, 12)).astype("float32")
    np.savez(tmp_path / "x.npz", data=x)
    results = []
    for name in ("net.relay", "net.json"):
        target = tmp_path / f"{name}.so"
        options = ("--target", "llvm", "--params", tmp_path / "params.npz", "-o", target)
        assert "MB" in run("build", tmp_path / name, *options)
        outputs = tmp_path / f"{name}.npz"
        with pytest.raises(errors.InvalidOption, match=r"absent\.npz"):
            run("run", target, "--inputs", tmp_path / "absent.npz")
        report = run("run", target, "--inputs", tmp_path / "x.npz", "--outputs", outputs, "--json")
        assert json.loads(report)["output_0"] == [2, 16, 12, 12]
        results.append(np.load(outputs)["output_0"])
    assert np.array_equal(*results)


def test_build_says_what_streams_do(text: Path, tmp_path: Path) -> None:
    options = ("--backends", "tvm", "-o", tmp_path / "net.so")
    assert "1 stream (requested: one stream was asked for)" in run(
        "build", text, *options, "--streams", "1"
    )
    with pytest.raises(errors.InvalidOption, match="streams='many'"):
        run("build", text, *options, "--streams", "many")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("place", "absent.relay"), errors.InvalidOption, "does not exist"),
        (("place", "net.caffe"), errors.InvalidOption, "Relay text"),
        (("run", "absent.so"), errors.InvalidOption, "which does not exist"),
        (("build", "{text}", "-o", "a.so", "--target", "lvm"), errors.InvalidOption, "'lvm'"),
        (
            ("build", "{text}", "-o", "a.so", "--target", "llvm", "--streams", "many"),
            errors.InvalidOption, "streams='many'",
        ),
        *(
            (("build", "absent.relay", "-o", *options.split()), error, match)
            for options, error, match in (
                ("/proc/none/a.so", errors.CacheUnwritable, "no folder"),
                ("{folder}", errors.CacheUnwritable, "a folder"),
                ("{text}/a.so", errors.CacheUnwritable, "no folder"),
                ("a.so --html /proc/none/a.html", errors.CacheUnwritable, "a.html"),
                ("a.so --target rocm", errors.InvalidOption, "rocm"),
                ("a.so --precision float15", errors.InvalidOption, "float15"),
                ("a.so --kernels some", errors.InvalidOption, "some"),
                ("a.so --budget -1", errors.InvalidOption, "budget"),
                ("a.so --budget nan", errors.InvalidOption, "budget"),
                ("a.so --search all", errors.InvalidOption, "'all'"),
                ("a.so --backends cudnnn", errors.InvalidOption, "cudnnn"),
            )
        ),
        (("trace", "absent.relay", "-o", "/proc/none/a.json"), errors.CacheUnwritable, "a.json"),
        (("place", "absent.relay", "--out", "/proc/none/plan"), errors.CacheUnwritable, "plan"),
        (("place", "{text}", "--params", "absent.params"), errors.InvalidOption, "not exist"),
        (("place", "{text}", "--params", "{folder}"), errors.InvalidOption, "which is no file"),
        (("place", "{text}", "--params", "{text}"), errors.RelaySyntaxError, "relay: bytes that"),
        (("place", "{list}"), errors.RelaySyntaxError, "list.json: JSON without a list"),
        (("place", "{text}", "--params", "{broken}"), errors.InvalidOption, "numpy.savez"),
        (("place", "{text}", "--params", "{other}"), errors.InvalidOption, "'weigth' in"),
    ],
)  # fmt: skip
def test_mistakes(text: Path, tmp_path: Path, arguments, error, match) -> None:
    files = {"text": text, "broken": tmp_path / "broken.npz", "other": tmp_path / "other.npz"}
    files |= {"folder": tmp_path, "list": tmp_path / "list.json"}
    files["list"].write_text("[]")
    files["broken"].write_text("no archive")
    np.savez(files["other"], weigth=np.zeros((16, 8, 3, 3), "float32"))
    with pytest.raises(error, match=match):
        run(*(argument.format(**files) for argument in arguments))


def test_files_that_cannot_be_written_are_one_line(text: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["convoy", "place", str(text), "--out", "/proc/none/plan"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert "/proc/none/plan, which cannot be written" in capsys.readouterr().err


def test_unknown_input_is_refused(text: Path, tmp_path: Path) -> None:
    target = tmp_path / "net.so"
    run("build", text, "--target", "llvm", "-o", target)
    np.savez(tmp_path / "x.npz", picture=np.zeros((2, 8, 12, 12), "float32"))
    with pytest.raises(errors.InvalidOption, match="picture"):
        run("run", target, "--inputs", tmp_path / "x.npz")


def test_text_that_does_not_parse_points_at_the_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.relay"
    path.write_text(TEXT.replace("nn.relu(", "nn.rellu("))
    with pytest.raises(errors.ConvoyError, match=r"nn\.relu"):
        run("place", path)


def test_place_and_trace_draw_a_network(text: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "net.html", tmp_path / "net.json"
    run("place", text, "--backends", "cutlass,tvm", "--html", page)
    assert 'data-timeline="predicted"' in page.read_text() and "cutlass" in page.read_text()
    printed = run("trace", text, "--backends", "cutlass,tvm", "-o", trace, "--html", page)
    assert "predicted" in printed and "perfetto" in printed
    slices = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    assert [e["cat"] for e in slices] == ["tvm", "cutlass", "tvm"], "TVM's own kernels as well"
    assert page.stat().st_size < 200_000

"""The README's code runs, its numbers come from results files, and links lead somewhere."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from convoy import relay

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"),
     *ROOT.glob("tuning/**/*.md")]
)  # fmt: skip
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def block_of(word: str) -> str:
    (found,) = [block for block in BLOCKS if word in block]
    return str(found).replace('"cuda"', '"llvm"')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model files that the README reads, with its input of (1, 3, 32, 32)."""
    data = relay.var("data", shape=(1, 3, 32, 32), dtype="float32")
    weight = relay.var("weight", shape=(16, 3, 3, 3), dtype="float32")
    conv = relay.nn.conv2d(data, weight, padding=(1, 1), channels=16, kernel_size=(3, 3))
    mod = relay.IRModule.from_expr(relay.Function([data, weight], relay.nn.relu(conv)))
    values = np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype("float32")
    (tmp_path / "network.relay").write_text(mod.astext())
    (tmp_path / "network.params").write_bytes(relay.save_param_dict({"weight": values}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_and_load(word: str, folder: Path) -> None:
    exec(compile(block_of(word), "README.md", "exec"), {})
    assert (folder / "network.so").is_file()
    namespace: dict[str, object] = {}
    exec("import convoy\n" + block_of("convoy.load"), namespace)
    assert getattr(namespace["y"], "shape", None) == (1, 16, 32, 32)


def test_relay(folder: Path) -> None:
    run_and_load("relay.parse", folder)


def test_onnx(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    values = np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "small",
        [helper.make_tensor_value_info("x", real, (1, 3, 32, 32))],
        [helper.make_tensor_value_info("y", real, (1, 16, 32, 32))],
        [onnx.numpy_helper.from_array(values, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "network.onnx")
    run_and_load("convoy.from_onnx", folder)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_pytorch(folder: Path) -> None:
    run_and_load("convoy.compile", folder)


def test_numbers_come_from_the_results() -> None:
    """Each time of the table is one of the run that its row links to."""
    rows = re.findall(r"^\| (.+) \| (\d+) \| (.+) \| \[run\]\((.+)\) \|$", README, re.MULTILINE)
    assert len(rows) >= 5
    for network, batch, cells, path in rows:
        results = json.loads((ROOT / path).read_text())["rows"]
        of_batch = [r for r in results if r.get("batch", r.get("N")) == int(batch)]
        known = {f"{r['ms']:.3f}" for r in of_batch if r.get("ms")}
        times = [cell.strip("* ") for cell in cells.split("|")]
        assert set(times) - {"-"} <= known, f"{network} at {batch}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.replace("`", "").lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "code", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    for page in (ROOT / "docs").glob("**/*.md"):
        path = page.relative_to(ROOT / "docs").as_posix()
        if path not in ("README.md", "example_backend/README.md"):
            assert f"({path})" in index, path


def test_the_readme_is_one_screen() -> None:
    assert len(README.splitlines()) <= 100

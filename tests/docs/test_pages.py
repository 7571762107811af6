"""Examples in the documentation: Python runs, commands parse, scripts have the options named."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tvm import relax

import convoy
from convoy.cli.main import app
from convoy.ir.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"),
     *ROOT.glob("tuning/**/*.md")]
)  # fmt: skip
#: Pages whose Python runs on a CPU as it stands, with "llvm" in place of "cuda".
RUNNABLE = [
    "design/placement.md",
    "design/streams.md",
    "guides/add-a-cost-model.md",
    "guides/build.md",
    "guides/deploy.md",
    "guides/pytorch.md",
    "guides/read-a-plan.md",
    "guides/report.md",
    "guides/streams.md",
    "reference/records.md",
    "tutorials/onnx.md",
    "tutorials/pytorch.md",
    "tutorials/relay.md",
    "tutorials/training-step.md",
]
#: Imports of packages that tests may lack.
OPTIONAL = ("torch", "onnx")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    """The code of a page in these languages, what is quoted from a file left out."""
    found = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [code for language, info, code in found if language in languages and "=" not in info]


def missing_packages(code: str) -> list[str]:
    found = [
        name for name in OPTIONAL if re.search(rf"^(import|from) {name}\b", code, re.MULTILINE)
    ]
    return [name for name in found if find_spec(name) is None]


def small_network(name: str = "data") -> Any:
    builder = relax.BlockBuilder()
    x = relax.Var(name, relax.TensorType((1, 8, 8, 8), "float32"))
    filters = relax.const(np.ones((16, 8, 3, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, filters, padding=1))
            y = builder.emit_output(builder.emit(relax.op.nn.relu(y)))
        builder.emit_func_output(y)
    return builder.get()


@pytest.mark.parametrize("name", RUNNABLE)
def test_python_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks(ROOT / "docs" / name, "python")).replace('"cuda"', '"llvm"')
    if missing := missing_packages(code):
        pytest.skip(f"needs {', '.join(missing)}")
    # What only a GPU has: the timeline of a module that was measured.
    code = code.split("built = convoy.build(module")[0] if name == "guides/report.md" else code
    assert code
    namespace = {
        "convoy": convoy, "module": small_network(), "net_a": small_network(),
        "net_b": small_network(), "x": np.ones((1, 8, 8, 8), "float32"),
        "workload": Workload("fprop", 1, 8, 8, 8, 16, 3, 3),
    }  # fmt: skip
    if "built." in code and "built =" not in code:
        namespace["built"] = convoy.build(small_network(), "llvm")
    exec(compile(code, name, "exec"), namespace)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name_of)
def test_what_python_imports_is_there(page: Path) -> None:
    for code in blocks(page, "python"):
        if "import tvm\nfrom tvm import relay" in code:
            continue  # the script for TVM 0.18 that is to be moved
        if missing_packages(code):
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                exec(ast.unparse(node), {})


def test_the_reference_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    assert spec is not None and spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.main(["--check"]) == 0, capsys.readouterr().out


def command_lines() -> list[tuple[str, list[str]]]:
    """(page, words) of every command in a shell block; options' values may be placeholders."""
    found = []
    for page in PAGES:
        for block in blocks(page, "sh", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    words.pop(0)
                if words:
                    found.append((name_of(page), words))
    return found


def inline_commands() -> list[tuple[str, list[str]]]:
    """The same of `convoy ...` in running text, where it has more than a name."""
    found = []
    for page in PAGES:
        for text in re.findall(r"`(convoy \w+ [^`]+)`", page.read_text()):
            found.append((name_of(page), shlex.split(text)))
    return found


@pytest.mark.parametrize(
    ("page", "words"),
    [c for c in [*command_lines(), *inline_commands()] if c[1][0] == "convoy"],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[1:4]),
)
def test_commands_parse(page: str, words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    arguments = words[1:]
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts}
    given = {word.split("=")[0] for word in arguments if word.startswith("-")}
    assert given <= known, f"{page}: {command.name} has no {', '.join(given - known)}"


@pytest.mark.parametrize(
    ("page", "words"),
    [c for c in command_lines() if c[1][0] == "python" and c[1][1].endswith(".py")],
    ids=lambda value: value if isinstance(value, str) else value[1],
)
def test_commands_of_scripts_parse(page: str, words: list[str], monkeypatch: Any) -> None:
    """The ``parser()`` of a script takes the command as the page has it."""
    monkeypatch.syspath_prepend(str((ROOT / words[1]).parent))
    parser = importlib.import_module(Path(words[1]).stem).parser()
    try:
        parser.parse_args(words[2:])
    except SystemExit:
        pytest.fail(f"{page}: {' '.join(words)} does not parse")

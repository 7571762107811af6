"""Shared by all tests: GPU and slow markers, a cache folder, and a count of skips at the end."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from convoy.backends.kernels.toolkit import Toolkit

_TESTS = Path(__file__).resolve().parent
_SOURCES = _TESTS.parent / "python"
#: Folders whose tests compile for the CPU at LLVM's lowest level.
_UNOPTIMIZED = (
    *("emulation", "examples", "frontend", "gpu", "hostile", "normalize", "ops", "partition"),
    *("pytorch", "relay", "training"),
)
#: Folders whose tests draw fewer examples: each compiles a network, or searches a plan.
_FEWER_EXAMPLES = (
    *("attention", "depthwise", "emulation", "kernels", "lower", "normalize", "ops", "partition"),
    *("placement", "pytorch", "sm90", "streams", "tir"),
)
#: Folders whose tests are of what cuDNN answers.
_ASKING = ("backends", "gpu", "runtime")
#: Folders whose tests may start processes that use PyTorch.
_WITH_TORCH = ("docs", "examples", "gpu", "pytorch", "scripts")

hypothesis.settings.register_profile("default", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


@functools.cache
def why_no_gpu() -> str:
    """Return why no GPU is usable; empty where the CUDA driver reports one."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver (libcuda.so.1 not found)"
    count = ctypes.c_int(0)
    if (code := cuda.cuInit(0)) != 0:
        return f"the CUDA driver does not start (cuInit returned {code})"
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "the CUDA driver sees no GPU"
    return ""


def _folder(path: Path) -> str:
    """Return the folder of tests in which a file is."""
    return path.relative_to(_TESTS).parts[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests marked slow")


def pytest_collection_finish() -> None:
    """Collect garbage less often: what lives until the end, modules and tests, takes most of it."""
    gc.set_threshold(20_000, 20, 40)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from .helpers import examples

    run_slow = config.getoption("--slow")
    examples.all_of_them = run_slow
    examples.limit(item.obj for item in items if _folder(item.path) in _FEWER_EXAMPLES)
    for item in items:
        if item.get_closest_marker("gpu") and why_no_gpu():
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {why_no_gpu()}"))
        if item.get_closest_marker("slow") and not run_slow:
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


@pytest.fixture(autouse=True)
def _unoptimized(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare LLVM's optimizations, most of the time of small networks, where tests are of what comes
    before them. ``--slow`` keeps them."""
    if _folder(request.path) in _UNOPTIMIZED and not request.config.getoption("--slow"):
        from convoy.lower import executable

        from .helpers import unoptimized

        unoptimized.register()
        monkeypatch.setattr(executable, "LLVM_LEVEL", None)
        monkeypatch.setattr(unoptimized, "enabled", True)


@pytest.fixture(autouse=True)
def _heuristics_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask cuDNN once for each workload where tests are not of the answers."""
    if _folder(request.path) not in _ASKING and "convoy.backends.cudnn" in sys.modules:
        from .helpers import cudnn_answers

        backend = sys.modules["convoy.backends.cudnn"]
        monkeypatch.setattr(backend, "call_json", cudnn_answers.call_json)


@pytest.fixture(autouse=True)
def _torch_in_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that tests start find PyTorch, where these may need it."""
    if _folder(request.path) in _WITH_TORCH:
        from .helpers.torch_processes import path_with_torch

        monkeypatch.setenv("PYTHONPATH", path_with_torch())


@pytest.fixture(scope="session", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests leave the user's files alone; CONVOY_TEST_CACHE_DIR keeps a cache between runs. The
    processes of one run share compiled kernels, so that each is compiled once. Processes that tests
    start import the checkout, and no PyTorch."""
    from .helpers.torch_processes import WITHOUT_TORCH

    kept = os.environ.get("CONVOY_TEST_CACHE_DIR")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("convoy_cache")
    if not kept and "PYTEST_XDIST_WORKER" in os.environ:
        shared = tmp_path_factory.getbasetemp().parent / "convoy_kernels"
        shared.mkdir(exist_ok=True)
        (folder / "kernels").symlink_to(shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVOY_CACHE_DIR", str(folder))
        patch.setenv("CONVOY_MODULE_CACHE_BYTES", "0")  # no test gets the module of another one
        paths = (WITHOUT_TORCH, _SOURCES, os.environ.get("PYTHONPATH", ""))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, map(str, paths))))
        patch.setenv("CONVOY_DATA_DIR", str(tmp_path_factory.mktemp("convoy_data")))
        yield folder


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    """PyTorch's generator starts anew for each test: a test that passed passes again."""
    if "torch" in sys.modules:
        from .helpers import torch_operators

        sys.modules["torch"].manual_seed(0)
        torch_operators.list_once()


@pytest.fixture(scope="session")
def toolkit() -> Toolkit:
    """The CUDA compiler; tests that use it are skipped without one."""
    from convoy.backends.kernels.toolkit import find_toolkit
    from convoy.errors import LibraryMissing

    try:
        return find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA compiler: {missing.got}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count skips by reason, to show at a glance what was not tested."""
    reasons: collections.Counter[str] = collections.Counter()
    for report in terminalreporter.stats.get("skipped", []):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    if not reasons:
        terminalreporter.write_line("no test was skipped")
        return
    terminalreporter.section("tests skipped, by reason")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5d}  {reason}")

"""Fixtures that several tests share, and kernels compiled ahead of the tests that run them.

    python -m pytest tests/gpu -n 16 --dist=loadgroup

Tests that run kernels of their own choice name them: their module has ``kernels(parameters,
device)``, of the parameters of its tests. These run last, and one process begins to compile for
them when the first test begins.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from convoy.backends.kernels.compile import compile_many
from convoy.backends.kernels.kernel import Kernel
from convoy.errors import ConvoyError
from convoy.ir.device import Device


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record file of the module's tests, which measure each candidate once."""
    return tmp_path_factory.mktemp("records") / "own.jsonl"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: "gpu" in item.keywords and hasattr(_module(item), "kernels"))


def needed(items: Sequence[pytest.Item], device: Device) -> set[Kernel]:
    """The kernels that tests name, without those that are skipped."""
    parameters: dict[ModuleType, list[Mapping[str, Any]]] = {}
    for item in items:
        module = _module(item)
        if hasattr(module, "kernels") and not item.get_closest_marker("skip"):
            call = getattr(item, "callspec", None)
            parameters.setdefault(module, []).append(call.params if call else {})
    return {
        kernel for module, given in parameters.items() for kernel in module.kernels(given, device)
    }


@pytest.fixture(scope="session", autouse=True)
def _compiled_ahead(request: pytest.FixtureRequest, _own_folders: Path) -> Iterator[None]:
    from convoy.runtime import present_device

    first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    if not first or (device := present_device()) is None:
        yield
        return
    kernels = needed(request.session.items, device)
    ended = threading.Event()

    def stop_if_ended(*_: object) -> None:
        if ended.is_set():
            raise TestsEnded

    def compile_all() -> None:
        # The tests that need the kernels say why they cannot be compiled.
        with contextlib.suppress(ConvoyError, TestsEnded):
            compile_many(kernels, progress=stop_if_ended)

    threading.Thread(target=compile_all, daemon=True).start()
    yield
    ended.set()


class TestsEnded(Exception):
    """No test is left that waits for a kernel."""


def _module(item: pytest.Item) -> ModuleType | None:
    return getattr(item, "module", None)

"""The GPU as plain data, and what the runtime says of the libraries that it opens."""

from __future__ import annotations

import os
import subprocess
import sys

from support import Fakes


def test_current_device(fakes: Fakes) -> None:
    device, message = fakes.run(
        """
        import dataclasses
        from convoy.runtime import check_device, current_device
        check_device(90); check_device(None)
        try: check_device(80)
        except errors.WrongDevice as err: message = str(err)
        result([dataclasses.asdict(current_device()), message])
        """
    )
    assert device == {
        "name": "Fake H200",
        "arch": 90,
        "sm_count": 132,
        "shared_memory_per_block": 232448,
        "l2_bytes": 1 << 20,
        "memory_bytes": 1 << 37,
        "memory_bandwidth": 4.3e12,  # that of an H200, whose clock and bus the stand-in has
        "threads_per_sm": 2048,
        "blocks_per_sm": 32,
        "registers_per_sm": 65536,
    }
    assert "Fake H200 of compute capability 9.0" in message and "8.0" in message


def test_status_names_everything(fakes: Fakes) -> None:
    status = fakes.run("from convoy.runtime import status; result(status())")
    assert status["cuda"] == str(fakes.cuda)
    assert status["gpu"] == "Fake H200"
    assert status["cudnn"] == f"91900 at {fakes.cudnn}"
    assert status["runtime"].endswith("libconvoy_runtime.so")


def test_status_without_any_library(tmp_path) -> None:
    """Nothing is raised: that is what the doctor is for."""
    code = "import json; from convoy.runtime import status; print(json.dumps(status()))"
    env = {**os.environ, "CONVOY_RUNTIME_LIBRARY": str(tmp_path / "none.so")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("not usable") == 4 and "none.so" in done.stdout


def test_library_that_does_not_load(tmp_path) -> None:
    broken = tmp_path / "libconvoy_runtime.so"
    broken.write_bytes(b"\x7fELF and no more")
    code = (
        "from convoy.runtime import load_runtime\n"
        "from convoy.errors import LibraryMissing\n"
        "try: load_runtime()\n"
        "except LibraryMissing as err: print(err)\n"
    )
    env = {**os.environ, "CONVOY_RUNTIME_LIBRARY": str(broken)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert "cannot be loaded" in done.stdout and "Build it again" in done.stdout

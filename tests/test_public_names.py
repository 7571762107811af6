"""``import convoy``: quick, free of heavy imports, and all public names there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import convoy


def _fresh(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    heavy = "{'tvm', 'tvm_ffi', 'numpy', 'rich', 'typer', 'torch'}"
    assert _fresh(f"import sys, convoy; print({heavy} & set(sys.modules))") == "set()"


@pytest.mark.parametrize("name", convoy.__all__)
def test_public_name_exists(name: str) -> None:
    assert getattr(convoy, name) is not None
    assert name in dir(convoy)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'fold'"):
        convoy.fold  # noqa: B018


@pytest.mark.parametrize("first", ["import convoy.build", "from convoy.build import place"])
def test_build_is_the_function_whoever_comes_first(first: str) -> None:
    assert _fresh(f"{first}; import convoy; print(callable(convoy.build))") == "True"


def test_cuda_runtime_of_the_wheel_is_there_before_tvm() -> None:
    mapped = "'libcudart' in open('/proc/self/maps').read()"
    code = f"import convoy, sys; print('tvm' in sys.modules, {mapped})"
    assert _fresh(code) == "False True"

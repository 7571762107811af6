"""``import convoy``: quick, free of heavy imports, and all public names there."""

from __future__ import annotations

import pkgutil
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


def test_no_module_has_the_name_of_a_public_function() -> None:
    modules = {module.name for module in pkgutil.iter_modules(convoy.__path__)}
    functions = set(convoy.__all__) - {"errors", "graph_executor", "relay"}
    assert not modules & functions


def test_cuda_runtime_of_the_wheel_is_there_before_tvm() -> None:
    mapped = "'libcudart' in open('/proc/self/maps').read()"
    code = f"import convoy, sys; print('tvm' in sys.modules, {mapped})"
    assert _fresh(code) == "False True"

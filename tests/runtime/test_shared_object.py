"""Shared objects of data alone, by the system's loader and by TVM's."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from convoy.runtime.shared_object import packed, shared_object

PAGE = 1 << 16


@pytest.mark.parametrize("size", [1, 4095, PAGE, 5 * PAGE + 3])
@pytest.mark.parametrize("behind", [b"", b"a seal"])
def test_the_loader_finds_the_symbol(size: int, behind: bytes, tmp_path: Path) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, "uint8")
    path = tmp_path / "data.so"
    path.write_bytes(b"".join([*shared_object(data), behind]))
    library = ctypes.CDLL(str(path))
    found = (ctypes.c_uint8 * size).in_dll(library, "__tvm_ffi__library_bin")
    assert bytes(found) == data.tobytes()
    with pytest.raises(AttributeError, match="undefined symbol"):
        _ = library.__tvm_ffi__library_ctx


def serialized(values: np.ndarray) -> tvm.runtime.Module:
    """A module of one function, which returns a constant."""
    builder = relax.ExecBuilder()
    with builder.function("main", num_inputs=0):
        constant = builder.convert_constant(tvm.runtime.tensor(values))
        builder.emit_call("vm.builtin.copy", [constant], dst=builder.r(0))
        builder.emit_ret(builder.r(0))
    return builder.get().mod


def test_tvm_loads_what_needs_no_linker(tmp_path: Path) -> None:
    values = np.arange(50_000, dtype="float32")
    data = packed(serialized(values))
    assert data is not None
    path = tmp_path / "net.so"
    path.write_bytes(b"".join(shared_object(data)))
    loaded = tvm_ffi.load_module(path)
    assert np.array_equal(relax.VirtualMachine(loaded, tvm.cpu())["main"]().numpy(), values)


@pytest.mark.parametrize(("machine", "code"), [("x86_64", 62), ("aarch64", 183)])
def test_the_file_is_for_the_machine(
    machine: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    header = bytes(shared_object(np.zeros(8, "uint8"))[0])
    assert int.from_bytes(header[18:20], "little") == code


def test_for_unknown_machines_modules_are_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert packed(serialized(np.zeros(8, "float32"))) is None


def test_code_of_the_cpu_needs_a_linker() -> None:
    x = relax.Var("x", relax.TensorType((5,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    assert packed(tvm.compile(builder.get(), "llvm").mod) is None

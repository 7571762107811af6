"""A runtime module inside a TVM executable: compiled, exported, and run by a process that has TVM's
runtime but not its compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT, Fakes, host_arrays, kernel_entry, small

from convoy import errors
from convoy.ir.epilogue import Epilogue
from convoy.measure import reference
from convoy.runtime import create_module, load_runtime

WORKLOAD = small(epilogue=Epilogue(bias=True))

LOAD = """
import sys
sys.path.insert(0, {python!r})
from convoy.runtime import load_runtime
load_runtime()
import numpy as np, tvm
from tvm.runtime.vm import VirtualMachine
data = np.load({arrays!r})
vm = VirtualMachine(tvm.runtime.load_module({library!r}), tvm.cpu())
y = vm["main"](*[tvm.runtime.tensor(data[name]) for name in ("x", "w", "bias")])
np.save({output!r}, y.numpy())
"""


def compile_with(external: Any) -> Any:
    """A network of one external call, compiled with TVM."""
    load_runtime()
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    shapes = {name: shape for name, shape, _ in WORKLOAD.operand_shapes()}
    params = [
        relax.Var(name, relax.TensorType(shapes[name], "float32")) for name in ("x", "w", "bias")
    ]
    with builder.function("main", params):
        with builder.dataflow():
            call = relax.op.call_dps_packed(
                "convoy_0", relax.Tuple(params), relax.TensorType(shapes["y"], "float32")
            )
            output = builder.emit_output(builder.emit(call))
        builder.emit_func_output(output)
    return tvm.compile(builder.get().with_attr("external_mods", [external]), "llvm")


def module(fakes: Fakes, **more: Any) -> Any:
    return create_module([kernel_entry(WORKLOAD, fakes.blobs, "convoy_0", 0, **more)], fakes.blobs)


@pytest.fixture(scope="module")
def executable(fakes: Fakes) -> Any:
    return compile_with(module(fakes))


def expected(arrays: list[np.ndarray]) -> np.ndarray:
    names = [name for name, _, _ in WORKLOAD.operand_shapes()]
    return reference.full(WORKLOAD, dict(zip(names, arrays, strict=True)))[0]


def test_in_process(executable) -> None:
    import tvm
    from tvm.runtime.vm import VirtualMachine

    machine = VirtualMachine(executable, tvm.cpu())
    for seed in range(3):
        arrays = host_arrays(WORKLOAD, seed)
        y = machine["main"](*[tvm.runtime.tensor(array) for array in arrays[:-1]]).numpy()
        np.testing.assert_allclose(y, expected(arrays), rtol=1e-4, atol=1e-5)


def test_errors_keep_their_class_through_the_vm(fakes: Fakes) -> None:
    import tvm
    from tvm.runtime.vm import VirtualMachine

    machine = VirtualMachine(compile_with(module(fakes, swizzle=99)), tvm.cpu())
    with pytest.raises(errors.CorruptArtefact, match="swizzle 99 does not exist"):
        machine["main"](*[tvm.runtime.tensor(array) for array in host_arrays(WORKLOAD)[:-1]])


def test_exported_and_run_without_the_compiler(executable, tmp_path: Path) -> None:
    library, arrays_file, output = (str(tmp_path / n) for n in ("m.so", "in.npz", "out.npy"))
    executable.export_library(library)
    arrays = host_arrays(WORKLOAD, 7)
    np.savez(arrays_file, x=arrays[0], w=arrays[1], bias=arrays[2])
    code = LOAD.format(
        python=str(ROOT / "python"), arrays=arrays_file, library=library, output=output
    )
    env = {**os.environ, "TVM_USE_RUNTIME_LIB": "1"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)
    np.testing.assert_allclose(np.load(output), expected(arrays), rtol=1e-4, atol=1e-5)


def test_truncated_library_content_is_noticed(executable, fakes: Fakes, tmp_path: Path) -> None:
    """The module's own checksum catches what changes inside an otherwise whole shared object."""
    library = tmp_path / "m.so"
    executable.export_library(str(library))
    content = bytearray(library.read_bytes())
    at = content.index(b'"functions"')
    content[at + 1 : at + 4] = b"FUN"
    library.write_bytes(content)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r})\n"
        "from convoy.runtime import load_runtime\n"
        "from convoy.errors import CorruptArtefact\n"
        "load_runtime()\n"
        "import tvm\n"
        f"try: tvm.runtime.load_module({str(library)!r})\n"
        "except CorruptArtefact as err: print('CAUGHT', err)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert "CAUGHT" in done.stdout and "checksum" in done.stdout

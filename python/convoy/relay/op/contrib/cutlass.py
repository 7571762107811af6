"""`partition_for_cutlass` and its companions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from convoy.relay.ast import Call, Op
from convoy.relay.loading import load_module
from convoy.relay.module import IRModule
from convoy.relay.restriction import BACKENDS, restricted
from convoy.relay.visit import post_order
from convoy.relay.vm import Executable

# What CUTLASS has kernels for.
_OPS = (
    "nn.conv2d",
    "nn.conv2d_transpose",
    "nn.conv2d_backward_weight",
    "nn.dense",
    "nn.matmul",
    "nn.batch_matmul",
)


def partition_for_cutlass(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
    """Restrict a module to kernels of CUTLASS and of TVM.

    Args:
        mod: The module.
        params: Values that become constants; unknown names are ignored.
    """
    return restricted(mod, params, "cutlass")


def num_cutlass_partitions(mod: IRModule) -> int:
    """Count the operators that CUTLASS may run; 0 for a module that is not partitioned."""
    if mod.attrs.get(BACKENDS) != ("cutlass", "tvm"):
        return 0
    return sum(
        isinstance(node, Call) and isinstance(node.op, Op) and node.op.name in _OPS
        for name in mod
        for node in post_order(mod[name])
    )


def has_cutlass() -> bool:
    """Return True: kernels of CUTLASS can be compiled; `convoy doctor` reports with what."""
    return True


def finalize_modules(
    lib: Any, lib_path: str | os.PathLike[str] = "compile.so", tmp_dir: str = "./tmp"
) -> Any:
    """Export a library and load it again; its kernels were compiled when it was built.

    Args:
        lib: What `relay.build` returned.
        lib_path: The file's name, in `tmp_dir`.
    """
    os.makedirs(tmp_dir, exist_ok=True)
    path = os.path.join(tmp_dir, lib_path)
    lib.export_library(path)
    return load_module(path)


def finalize_modules_vm(
    vm_exec: Any,
    lib_path: str | os.PathLike[str] = "compile.so",
    vmcode_path: str | os.PathLike[str] = "vmcode.ro",
    tmp_dir: str = "./tmp",
) -> Any:
    """Export and load what `relay.vm.compile` returned, with its code in a file of its own."""
    os.makedirs(tmp_dir, exist_ok=True)
    library, code_path = os.path.join(tmp_dir, lib_path), os.path.join(tmp_dir, vmcode_path)
    code, lib = vm_exec.save()
    lib.export_library(library)
    with open(code_path, "wb") as file:
        file.write(code)
    with open(code_path, "rb") as file:
        return Executable.load_exec(file.read(), load_module(library))


def tune_cutlass_kernels(mod: IRModule, sm: int = 80, **options: Any) -> tuple[IRModule, int]:
    """Return the module as it is and the number of operators CUTLASS may run.

    `relay.build` chooses the kernels.

    Args:
        mod: The module.
        sm, **options: Accepted; the GPU and its measurements decide.
    """
    del sm, options
    return mod, num_cutlass_partitions(mod)


def build_cutlass_kernels(
    lib: Any, sm: int = 80, tmp_dir: str = "./tmp", lib_path: str = "compile.so", **options: Any
) -> Any:
    """Do as `finalize_modules`, under the name of scripts of 2022."""
    del sm, options
    return finalize_modules(lib, lib_path, tmp_dir)


def build_cutlass_kernels_vm(
    vm_exec: Any,
    sm: int = 80,
    tmp_dir: str = "./tmp",
    lib_path: str = "compile.so",
    vmcode_path: str = "vmcode.ro",
    **options: Any,
) -> Any:
    """Do as `finalize_modules_vm`, under the name of scripts of 2022."""
    del sm, options
    return finalize_modules_vm(vm_exec, lib_path, vmcode_path, tmp_dir)

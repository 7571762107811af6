"""A network that is imported only where no earlier build has it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..graph.expr import as_numpy, is_const
from ..threads import in_threads


@dataclass(frozen=True)
class Source:
    """The origin of a network's Relax module.

    Attributes:
        module: Import it.
        content: Texts and hashes that are equal only for what is imported as the same module;
            None where there are none, and the network's builds are not cached.
    """

    module: Callable[[], tvm.IRModule]
    content: Callable[[], Sequence[str] | None]

    @classmethod
    def of(cls, mod: tvm.IRModule) -> Source:
        """A module that is there already."""
        return cls(lambda: mod, functools.partial(module_content, mod))


def module_content(mod: tvm.IRModule) -> list[str] | None:
    """The text of a module, its structural hash and that of each constant; None where TVM cannot
    print it."""
    constants: list[np.ndarray] = []

    def visit(expr: relax.Expr) -> None:
        if is_const(expr):
            constants.append(as_numpy(expr))

    try:
        for func in mod.functions.values():
            if isinstance(func, relax.Function):
                relax.analysis.post_order_visit(func, visit)
        text = mod.script(show_meta=False)
        structure = tvm_ffi.structural_hash(mod, map_free_vars=True, skip_tensor_content=True)
    except Exception:  # of a printer of TVM; the build itself will tell
        return None
    hashes = in_threads(array_hash, constants)  # hundreds of megabytes
    return [hashlib.sha256(text.encode()).hexdigest(), str(structure), *hashes]


def array_hash(array: np.ndarray) -> str:
    """Hash of dtype, shape and elements."""
    found = hashlib.blake2b(f"{array.dtype} {array.shape} ".encode(), digest_size=32)
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()

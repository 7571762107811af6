"""Hash of a build's inputs: network, weights, options, machine, software and records.

Left out is what changes the time of a build alone, such as who is told of its progress. A build
whose inputs cannot be told by their content (a cost model or a backend that is an object, a backend
or a pattern that does not come with convoy) has no key and is never cached.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi

from .. import paths
from ..backends.registry import BUILT_IN
from ..ir.device import Device
from ..ir.plan import Plan
from ..partition import patterns
from ..records import environment, store
from .source import Source, array_hash

if TYPE_CHECKING:
    from ..graph.bind import Params

#: Other inputs: which libraries are used, and which kernels are proposed.
_VARIABLES = (
    *("CONVOY_CUDART", "CONVOY_CUDNN", "CONVOY_CUBLASLT", "CONVOY_NVCC"),
    *("CONVOY_PROGRAMMATIC_LAUNCH", "CONVOY_IN_PLACE", "CONVOY_CUTLASS_LIMIT"),
)


def build_key(
    network: Sequence[Source],
    target: str | tvm.target.Target,
    params: Params | None,
    options: Mapping[str, Any],
) -> str | None:
    """Hash everything that a build depends on but the user's own records.

    Args:
        network: Its modules, one for each batch size.
        options: All other arguments of ``convoy.build``, with their defaults.

    Returns:
        A SHA-256 in hexadecimal; None for a build that cannot be told by its content.
    """
    texts = {name: _text(value) for name, value in options.items()}
    if None in texts.values() or not _only_built_in(options.get("backends", ())):
        return None
    contents = [source.content() for source in network]
    if None in contents:
        return None
    parts = {
        "network": contents,
        "params": _tensors(params),
        "target": str(tvm.target.Target(target) if isinstance(target, str) else target),
        "context": _pass_context(),
        "options": texts,
        "software": _software(),
        "records": _files(map(str, store.expand([paths.records_dir()]))),
        "machine": dataclasses.asdict(dataclasses.replace(environment.current(), boot="")),
        "variables": {name: os.environ.get(name, "") for name in _VARIABLES},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _text(value: object) -> str | None:
    """An option as text that is the same for equal values; None if there is no such text."""
    if isinstance(value, Plan):
        return value.dumps()
    if isinstance(value, Device):
        return repr(value)
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, (list, tuple)):
        texts = [_text(entry) for entry in value]
        return None if None in texts else repr(texts)
    return repr(value) if value is None or isinstance(value, (str, int, float)) else None


def _only_built_in(backends: Iterable[object]) -> bool:
    own = all(type(p).__module__.startswith("convoy.") for p in patterns.registered())
    return own and all(name in BUILT_IN for name in backends)


def _tensors(value: object) -> object:
    """Parameters in their nesting, each tensor replaced by its hash."""
    if isinstance(value, Mapping):
        return {str(name): _tensors(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tensors(inner) for inner in value]
    if value is None:
        return None
    return array_hash(value.numpy() if hasattr(value, "numpy") else np.asarray(value))


def _pass_context() -> list[str]:
    context = tvm.transform.PassContext.current()
    fields = ("opt_level", "required_pass", "disabled_pass", "config")
    return [str(getattr(context, name)) for name in fields]


@functools.cache
def _software() -> str:
    """Versions of TVM and the contents of convoy: a checkout changes without a new version."""
    package = Path(__file__).resolve().parents[1]
    files = [*package.rglob("*.py"), *paths.codegen_dir().rglob("*.*"), paths.runtime_library()]
    content = _files(sorted(map(str, filter(Path.is_file, files))))
    return f"{tvm.__version__} {tvm_ffi.__version__} {content}"


def _files(names: Iterable[str]) -> str:
    found = hashlib.blake2b(digest_size=32)
    for name in names:
        found.update(f"{name}\0".encode())
        found.update(hashlib.sha256(Path(name).read_bytes()).digest())
    return found.hexdigest()

"""Loading executables from files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import convoy
from convoy.errors import CorruptArtefact, RelaySyntaxError, RelayTypeError
from convoy.relay.json_format import load_json
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule
from convoy.relay.specialized import Specialized
from convoy.relay.vm import archive
from convoy.relay.vm.compiling import compile
from convoy.relay.vm.executable import Executable


def load(path: str | os.PathLike[str]) -> Executable:
    """Load what `Executable.export_library` wrote.

    Raises:
        CorruptArtefact: Not such a file, or a damaged one.
    """
    found = archive.read(path)
    try:
        return _executable(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptArtefact(
            f"{os.fspath(path)} with an incomplete description ({error})", "an executable"
        ) from None


def _executable(found: archive.Archive) -> Executable:
    about = found.about
    if about.get("evaluated"):
        return compile(_module(found.source), _target(about))
    is_graph = bool(about["graph"])
    if not found.library and (is_graph or not found.source):
        raise ValueError("nothing to run")
    library = _library(found.library, is_graph) if found.library else None
    specialized = _specialized(about, found.source) if found.source else None
    names = [str(n) for n in about["inputs"]]
    exe = Executable(library, names, is_graph, _checked(about["result"]), specialized)
    exe.input_dtypes = {str(n): str(d) for n, d in about["dtypes"].items()}
    return exe


def _module(source: str) -> IRModule:
    try:
        mod = load_json(source)
    except (RelaySyntaxError, RelayTypeError) as error:
        raise ValueError(f"a module that is not readable: {error}") from None
    if not isinstance(mod, IRModule):
        raise TypeError(f"a {type(mod).__name__} for the module")
    return mod


def _specialized(about: Mapping[str, Any], source: str) -> Specialized:
    options = {str(k): _plain(v) for k, v in about["options"].items()}
    return Specialized(_module(source), None, _target(about), options)


def _target(about: Mapping[str, Any]) -> str:
    if about["target"] not in ("cuda", "llvm"):
        raise ValueError(f"target {about['target']}")
    return str(about["target"])


def _plain(value: Any) -> Any:
    """Return an option as `convoy.build` takes it: lists as tuples."""
    return tuple(value) if isinstance(value, list) else value


def _library(content: bytes, is_graph: bool) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "library.so")
        path.write_bytes(content)
        return convoy.load(path) if is_graph else tvm.runtime.load_module(str(path))


def _checked(result: Any) -> Any:
    """Check a structure from a file.

    Raises:
        TypeError: Something else.
    """
    if isinstance(result, list):
        return list(map(_checked, result))
    if result is not None:
        raise TypeError(f"{result!r} in the structure of the result")
    return None

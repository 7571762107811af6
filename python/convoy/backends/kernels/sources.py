"""Source and headers of a kernel, and hashes over them."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from ... import paths
from ...source_text import expanded, own_include
from .kernel import Kernel
from .toolkit import CUTLASS_VERSION

#: Folders of ``codegen_dir()`` whose headers are kernels or parts of kernels.
FOLDERS = ("cutlass", "sm90", "depthwise", "attention")
#: Flags of every kernel. NDEBUG is not optional: device-side asserts make ptxas serialize the
#: tensor core pipeline.
FLAGS = ("-O3", "-DNDEBUG", "-std=c++17", "-Xcompiler=-fPIC,-fvisibility=hidden")
# Comments first, so that they are not searched for tokens.
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|(?P<token>"(?:\\.|[^"\\\n])*"|\w+|[^\w\s])', re.DOTALL)
_ONCE = re.compile(r"^\s*#\s*pragma\s+once\s*$", re.MULTILINE)


def code(header: Path) -> str:
    """All tokens that a header stands for, with the project's own includes expanded in place.

    Comments, spacing, names of files and how the code is divided among them are left out: where
    only these differ, so does no kernel.
    """
    return " ".join(filter(None, map(_tokens, expanded(header))))


@functools.lru_cache(maxsize=256)
def _tokens(text: str) -> str:
    found = _TOKEN.finditer(_ONCE.sub("", text))
    return " ".join(match["token"] for match in found if match["token"])


def code_key(kernel: Kernel) -> str:
    """Hash of everything that the compiled bytes depend on but the compiler."""
    parts = [kernel.source, *map(_code_once, headers(kernel)), _text_once(exports())]
    parts += [*kernel.flags, *FLAGS]
    parts += [CUTLASS_VERSION] if kernel.uses_cutlass else []
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@functools.cache
def _code_once(header: Path) -> str:
    return code(header)


@functools.cache
def _text_once(path: Path) -> str:
    return path.read_text()


def header(kernel: Kernel) -> Path:
    return paths.codegen_dir() / kernel.header


def headers(kernel: Kernel) -> list[Path]:
    """The kernel's header, and what its source includes beside it."""
    own = header(kernel)
    included = (own_include(own, line) for line in kernel.source.splitlines())
    return [own, *(path for path in included if path is not None and path != own)]


def exports() -> Path:
    return paths.include_dir() / "convoy" / "exports.map"


@functools.cache
def source_hashes() -> dict[str, str]:
    """A short hash of :func:`code` for every header in FOLDERS, by its path in ``codegen``
    (``cutlass/sm90_conv.cuh``)."""
    root = paths.codegen_dir()
    headers = [path for folder in FOLDERS for path in sorted((root / folder).glob("*.cuh"))]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(code(path).encode()).hexdigest()[:12]
        for path in headers
    }

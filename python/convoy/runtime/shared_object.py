"""Shared objects that hold data alone.

A module for a GPU has no code for the CPU: its file is one symbol, whose bytes are the serialized
module. TVM has LLVM and a linker write it, through two files and several copies of the weights.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    import numpy as np
    import tvm

#: Symbol of a serialized module, which TVM's loader looks for.
_SYMBOL = b"__tvm_ffi__library_bin"
#: Alignment of segments: of the largest pages of any Linux.
_PAGE = 1 << 16

# The structures of elf.h, with the order of their fields.
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOLS = struct.Struct("<IBBHQQ")
_TAG = struct.Struct("<QQ")
_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
_SHARED = 3
#: Codes of processors. Elsewhere modules are linked.
_MACHINES = {("Linux", "x86_64"): 62, ("Linux", "aarch64"): 183}
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ, _WRITE = 4, 2
_GLOBAL_OBJECT = 0x11
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _END = 4, 5, 6, 10, 11, 0


def packed(module: tvm.runtime.Module) -> np.ndarray | None:
    """Serialize a module with its imports; None where part of it is code that has to be linked, or
    for processors and systems whose files are not known here."""
    if module._collect_dso_modules() or _machine() is None:
        return None
    pack = tvm_ffi.get_global_func("runtime.ModulePackImportsToTensor")
    return pack(module).numpy()


def shared_object(data: np.ndarray) -> Sequence[bytes | memoryview]:
    """Return the content of a shared object for this machine that ``tvm_ffi.load_module`` loads.

    Args:
        data: The bytes of a serialized module (uint8), with their length before them.
    """
    names = b"\0" + _SYMBOL + b"\0"
    table = _SYMBOLS.pack(0, 0, 0, 0, 0, 0)
    table += _SYMBOLS.pack(1, _GLOBAL_OBJECT, 0, 1, _PAGE, data.nbytes)
    buckets = struct.pack("<5I", 1, 2, 1, 0, 0)  # one bucket, which starts with symbol 1 of 2

    symtab = _HEADER.size + 4 * _SEGMENT.size
    strtab = symtab + len(table)
    hashes = -(-(strtab + len(names)) // 8) * 8
    dynamic = -(-(hashes + len(buckets)) // 8) * 8
    tags = [(_HASH, hashes), (_STRTAB, strtab), (_SYMTAB, symtab)]
    tags += [(_STRSZ, len(names)), (_SYMENT, _SYMBOLS.size), (_END, 0)]
    entries = b"".join(_TAG.pack(*tag) for tag in tags)
    end = dynamic + len(entries)

    header = _HEADER.pack(
        _IDENTITY,
        _SHARED,
        _machine(),
        1,
        0,
        _HEADER.size,
        0,
        0,
        _HEADER.size,
        _SEGMENT.size,
        4,
        0,
        0,
        0,
    )
    # The loader writes addresses into the first segment.
    segments = [
        _segment(_LOAD, _READ | _WRITE, 0, end, _PAGE),
        _segment(_LOAD, _READ, _PAGE, data.nbytes, _PAGE),
        _segment(_DYNAMIC, _READ | _WRITE, dynamic, len(entries), 8),
        _segment(_STACK, _READ | _WRITE, 0, 0, 16),
    ]
    start = b"".join([header, *segments, table, names]).ljust(hashes, b"\0") + buckets
    return [(start.ljust(dynamic, b"\0") + entries).ljust(_PAGE, b"\0"), data.data]


def _machine() -> int | None:
    return _MACHINES.get((platform.system(), platform.machine()))


def _segment(kind: int, flags: int, offset: int, size: int, alignment: int) -> bytes:
    """A part of the file that is mapped at the address of its offset."""
    return _SEGMENT.pack(kind, flags, offset, offset, offset, size, size, alignment)

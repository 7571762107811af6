"""Kernels for slices of wider tensors: which there are, and that CUTLASS's are no others."""

from __future__ import annotations

import dataclasses
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from convoy.backends import registry
from convoy.backends.kernels import shipped
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.kernel import Launch
from convoy.backends.kernels.sm90.small import SmallConvKernel
from convoy.errors import InvalidOption
from convoy.ir.candidate import Decline
from convoy.ir.device import Device
from convoy.ir.workload import Workload

CONV = KernelConfig("sm90_conv", (128, 64, 64), schedule="pingpong")
_EM_CUDA = 190
ROOT = Path(__file__).resolve().parents[2]


def test_a_kernel_for_slices_is_another_library() -> None:
    strided = dataclasses.replace(CONV, strided=True)
    assert strided.name == f"{CONV.name}_strided" and strided.label == CONV.label
    assert KernelConfig.from_json(strided.to_json()) == strided
    assert "strided" not in CONV.to_json(), "records of compact kernels stay as they are"
    assert strided.header == "cutlass/sm90_strided.cuh"
    assert strided.source.endswith("CONVOY_EXPORT_KERNEL(Kernel)\nCONVOY_EXPORT_STRIDED(Kernel)\n")


@pytest.mark.parametrize(
    "kernel",
    [
        KernelConfig("sm80_conv", (64, 64, 32), (32, 32), 4, arch=80),
        dataclasses.replace(CONV, scheduler="splitk"),
        dataclasses.replace(CONV, affine_relu=True),
        KernelConfig("sm90_wgrad", (128, 64, 64), schedule="pingpong"),
    ],
    ids=lambda kernel: kernel.name,
)
def test_other_kernels_take_compact_tensors(kernel: KernelConfig) -> None:
    assert not kernel.can_be_strided
    with pytest.raises(InvalidOption, match="of slices"):
        dataclasses.replace(kernel, strided=True)


def test_operands_that_may_be_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of taps that is read as one is none of a slice's; a kernel that is not compiled is
    declined."""
    monkeypatch.setattr("convoy.backends.kernels.backend.is_compiled", lambda kernel: True)
    backend, device = registry.get("cutlass"), Device()

    def operands(workload: Workload) -> object:
        candidate = backend._candidate(Launch(CONV), workload, device, 0)
        return backend.sliceable(workload, candidate, device)

    plain = Workload("fprop", 2, 14, 14, 64, 64, 3, 3, padding=(1, 1, 1, 1))
    folded = Workload("fprop", 2, 14, 14, 8, 64, 3, 3, padding=(1, 0, 1, 0))
    assert operands(plain) == {"x", "residual", "y"}
    assert operands(folded) == {"residual", "y"}
    monkeypatch.setattr("convoy.backends.kernels.backend.is_compiled", lambda kernel: False)
    declined = operands(plain)
    assert isinstance(declined, Decline) and "_strided is not compiled" in declined.reason


def test_shipped_kernels_have_the_device_code_of_those_for_compact_tensors() -> None:
    """Instructions, constants and resources, so that the times of the one hold for the other."""
    found = [
        kernel
        for archive in shipped.archives()
        for kernel in shipped.kernels(archive)
        if isinstance(kernel, KernelConfig) and kernel.strided
    ]
    assert found
    for kernel in found:
        compact = shipped.find(dataclasses.replace(kernel, strided=False))
        strided = shipped.find(kernel)
        assert compact is not None and strided is not None, kernel.name
        code = device_code(strided.library)
        assert code and code == device_code(compact.library), kernel.name


#: Runs with the stand-in for libcudart, which notes the tensor maps of a kernel's launch.
_PREPARE = """
import ctypes, json, sys
fake = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
fake.fake_tensor_maps.restype = ctypes.c_char_p
from tests.helpers.kernel_abi import library
from convoy.ir.workload import Workload
library.load_cudart = lambda: None
class Rows(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("a", "residual", "d")]
kernel = library.KernelLibrary(sys.argv[2])
shape = library.Shape.of(Workload.from_json(json.loads(sys.argv[3])), 132)
operands = library.Operands(1 << 20, 1 << 21, None, 1 << 22, None, None, 1 << 23, None, None)
kernel.prepare(shape, operands)
found = [json.loads(fake.fake_tensor_maps())]
state = ctypes.create_string_buffer(kernel.state_bytes + 63)
aligned = ctypes.c_void_p((ctypes.addressof(state) + 63) // 64 * 64)
def prepare(a, d):
    arguments = map(ctypes.byref, (shape, operands, Rows(a, 0, d)))
    return kernel.function("prepare_strided")(*arguments, aligned)
assert prepare(96, 128) == 0
found.append(json.loads(fake.fake_tensor_maps()))
assert prepare(96, 124) and prepare(92, 128) and prepare(64, 128) and prepare(96, 32)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cudart")
    library, versions = folder / "libcudart.so.13", folder / "versions"
    versions.write_text("libcudart.so.13 { global: *; };")
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", f"-Wl,--version-script={versions}"]
    source = Path(__file__).parent / "fakes" / "fake_cudart.cc"
    subprocess.run(["g++", "-std=c++17", "-w", *flags, "-o", library, source], check=True)
    return library


def tensor_maps(library: bytes, workload: Workload, cudart: Path, folder: Path) -> list[Any]:
    """The maps of a kernel for compact tensors, and for slices."""
    path = folder / "kernel.so"
    path.write_bytes(library)
    command = [sys.executable, "-c", _PREPARE, cudart, path, json.dumps(workload.to_json())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "workload",
    [
        Workload("fprop", 2, 14, 10, 72, 40, 3, 3, padding=(1, 1, 1, 1)),
        Workload("fprop", 2, 14, 10, 72, 40, 1, 1),
    ],
    ids=lambda workload: workload.label,
)
def test_tensor_maps_of_slices(workload: Workload, cudart: Path, tmp_path: Path) -> None:
    """Those of compact tensors but for the bytes between rows: as many channels are read and
    written, so that nothing beside a slice is touched."""
    family = "sm90_conv" if workload.r == 3 else "sm90_gemm"
    tile = {"schedule": "pingpong", "activation": "relu"}
    entry = shipped.find(KernelConfig(family, (64, 64, 64), strided=True, **tile))
    assert entry is not None
    compact, sliced = tensor_maps(entry.library, workload, cudart, tmp_path)
    assert [m["sizes"] for m in sliced] == [m["sizes"] for m in compact]
    (x, w, y), (own_x, own_w, own_y) = sliced, compact
    assert w == own_w
    assert own_x["strides"][0] == 2 * 72 and own_y["strides"][0] == 2 * 40
    assert y["strides"][0] == 2 * 128, "and the result has no other rows"
    rows = [10, 10 * 14] if workload.r == 3 else []
    assert x["strides"][: 1 + len(rows)] == [2 * 96, *(2 * 96 * count for count in rows)]


def test_a_kernel_of_small_batches_reads_slices(cudart: Path, tmp_path: Path) -> None:
    """It writes without a tensor map."""
    workload = Workload("fprop", 2, 14, 10, 72, 40, 3, 3, padding=(1, 1, 1, 1))
    entry = shipped.find(SmallConvKernel())
    assert entry is not None
    compact, sliced = tensor_maps(entry.library, workload, cudart, tmp_path)
    (x, w), (own_x, own_w) = sliced, compact
    assert w == own_w and x["sizes"] == own_x["sizes"]
    assert own_x["strides"] == [2 * 72 * count for count in (1, 10, 10 * 14)]
    assert x["strides"] == [2 * 96 * count for count in (1, 10, 10 * 14)]


def device_code(library: bytes) -> list[dict[bytes, bytes]]:
    """The sections with code, constants and resources of each cubin in a kernel library."""
    found, place = [], 0
    while (place := library.find(b"\x7fELF", place + 1)) >= 0:
        if struct.unpack_from("<H", library, place + 18)[0] == _EM_CUDA:
            named = sections(library[place:])
            kinds = (b".text", b".nv.constant", b".nv.info.")
            found.append({name: data for name, data in named.items() if name.startswith(kinds)})
    return found


def sections(elf: bytes) -> dict[bytes, bytes]:
    """Content of an ELF file's sections by name, of those that have any."""
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQ", elf, start + i * size) for i in range(count)]
    table = elf[heads[names][4] :]
    no_content = 8
    return {
        table[name : table.index(b"\0", name)]: elf[offset : offset + length]
        for name, kind, _, _, offset, length in heads
        if kind != no_content
    }

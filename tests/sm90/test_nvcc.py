"""Real compilations: no spills, tensor cores not serialized, and checks that agree with Python."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import assume, given, settings
from tests.helpers.kernel_abi.library import KernelLibrary, Shape

from convoy.backends.kernels.compile import compile_kernel, compile_to
from convoy.backends.kernels.sm90.dgrad import DgradKernel
from convoy.backends.kernels.sm90.family import is_stem, sm90_backend
from convoy.backends.kernels.sm90.space import stem_launches
from convoy.backends.kernels.sm90.stem import StemDgradKernel, StemFpropKernel, StemWgradKernel
from convoy.ir.device import Device

from .test_backend import BASE, STEM, STEM_FPROP, STEM_WGRAD, changed, stem_windows, workloads

SMALL_WGRAD = stem_launches(changed(STEM_WGRAD, r=3, s=3), Device())[0].kernel
GENERAL = DgradKernel(128, 128, True, 4, 4, zeros=True)
KERNELS = [
    GENERAL,
    DgradKernel(128, 256, False, 4, 4, dtype="bfloat16"),
    DgradKernel(256, 128, False, 2, 2),
    DgradKernel(256, 128, False, 2, 2, swap_ab=True),
    DgradKernel(128, 256, False, 1, overlapped_epilogue=True, zeros=True),
    DgradKernel(256, 128, False, 2, overlapped_epilogue=True, swap_ab=True),
    DgradKernel(
        128, 128, False, 2, overlapped_epilogue=True, swap_ab=True, zeros=True, dtype="bfloat16"
    ),
    DgradKernel(192, 256, False, 2, 2, consumers=3),
    DgradKernel(384, 128, False, 1, consumers=3, zeros=True),
    DgradKernel(128, 128, False, 1, split=2),
    StemDgradKernel(3),
    StemDgradKernel(4, "bfloat16"),
    StemFpropKernel(3, 7, 7, relu=True),
    StemFpropKernel(4, 7, 7, dtype="bfloat16"),
    *{launch.kernel: None for launch in stem_launches(STEM_WGRAD, Device())},
    StemWgradKernel(4, 7, 9, 2, group=4, ahead=True, dtype="bfloat16"),
    StemWgradKernel(3, 4, 4, 4, parts=3, blocks=2, group=3),
]


@pytest.fixture(scope="module")
def general(toolkit) -> KernelLibrary:
    return KernelLibrary(compile_kernel(GENERAL, toolkit=toolkit).path)


@pytest.fixture(scope="module")
def small_wgrad(toolkit) -> KernelLibrary:
    return KernelLibrary(compile_kernel(SMALL_WGRAD, toolkit=toolkit).path)


@pytest.fixture(scope="module")
def stems(toolkit) -> dict[int, KernelLibrary]:
    return {
        c: KernelLibrary(compile_kernel(StemDgradKernel(c), toolkit=toolkit).path) for c in (1, 3)
    }


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_compiles_without_spills(toolkit, tmp_path, kernel):
    words = compile_to(kernel, tmp_path / "kernel.cubin", toolkit, ["-Xptxas=-v", "-cubin"])
    spills = re.findall(r"(\d+) bytes spill", words)
    assert spills and set(spills) == {"0"}, words
    assert "C75" not in words, words  # ptxas: wgmma serialized, or setmaxnreg ignored


@pytest.mark.parametrize(
    "kernel",
    [GENERAL, StemDgradKernel(3), StemFpropKernel(3, 3, 3), SMALL_WGRAD],
    ids=lambda kernel: kernel.name,
)
def test_exports_the_abi(toolkit, kernel):
    library = compile_kernel(kernel, toolkit=toolkit).path
    names = subprocess.run(
        ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
    ).stdout
    exported = re.findall(r" T (\w+)", names)
    assert sorted(exported) == sorted(
        f"convoy_kernel_{name}"
        for name in [
            "abi",
            "check",
            "error",
            "footprint",
            "launch",
            "prepare",
            "state_bytes",
            "workspace",
        ]
    )


@given(workloads())
@settings(max_examples=200)
def test_library_and_backend_accept_the_same(general, stems, workload):
    assume(workload.stride != (1, 1))  # the kernel can do it; the backend leaves it to others
    accepted = sm90_backend().accepts(workload, Device()) is None
    shape = Shape.of(workload, sm_count=132)
    if not is_stem(workload):
        assert (general.check(shape) == "") == accepted
    elif workload.c in stems:
        assert (stems[workload.c].check(shape) == "") == accepted


@given(stem_windows("fprop", filter_sizes=(3,), channels=(3,)))
@settings(max_examples=100)
def test_library_and_backend_accept_the_same_fprops(toolkit, workload):
    library = KernelLibrary(compile_kernel(StemFpropKernel(3, 3, 3), toolkit=toolkit).path)
    accepted = sm90_backend().accepts(workload, Device()) is None
    assert (library.check(Shape.of(workload, sm_count=132)) == "") == accepted


@given(stem_windows("wgrad", filter_sizes=(3,), channels=(3,), strides_w=(2,)))
@settings(max_examples=100)
def test_library_and_backend_agree_on_wgrads(small_wgrad, workload):
    """On those that are accepted, and on the workspace of each candidate."""
    found = sm90_backend().propose(workload, Device())
    accepted = isinstance(found, list)
    assert (small_wgrad.check(Shape.of(workload, sm_count=132)) == "") == accepted
    for candidate in found if accepted else ():
        launch = sm90_backend().launch_of(candidate)
        shape = Shape.of(workload, Device().sm_count, swizzle=launch.swizzle)
        if launch.kernel == SMALL_WGRAD:
            assert small_wgrad.workspace(shape) == candidate.workspace


def test_library_declines_with_words(general, stems):
    def why(library, workload, **fields):
        shape = Shape.of(workload, sm_count=132)
        for name, value in fields.items():
            setattr(shape, name, value)
        return library.check(shape)

    assert why(general, BASE) == "" and why(stems[3], STEM) == ""
    assert "another direction" in why(general, changed(op="fprop"))
    assert "do not follow" in why(general, BASE, p=27)
    assert "cannot be split" in why(general, BASE, split_k=2)
    assert "not supported" in why(general, changed(dilation=(2, 2)))
    assert "multiples" in why(general, changed(c=100))
    assert "another number" in why(stems[3], changed(STEM, c=1))
    assert "not supported" in why(stems[3], changed(STEM, r=9))
    assert "another direction" in why(general, STEM_FPROP)
    assert general.workspace(Shape.of(BASE, sm_count=132)) == 0


def test_kernel_without_zero_tile_declines_zero_phases(toolkit):
    library = KernelLibrary(compile_kernel(DgradKernel(128, 128, True, 4, 4), toolkit=toolkit).path)
    workload = changed(r=1, s=1, padding=(0, 0, 0, 0))
    assert "zero tile" in library.check(Shape.of(workload, sm_count=132))
    assert library.check(Shape.of(BASE, sm_count=132)) == ""


def test_cache_key_follows_the_source(toolkit):
    first = compile_kernel(StemDgradKernel(3), toolkit=toolkit)
    again = compile_kernel(StemDgradKernel(3), toolkit=toolkit)
    other = compile_kernel(StemDgradKernel(1), toolkit=toolkit)
    assert first == again and first.sha256 != other.sha256

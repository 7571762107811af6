"""Which headers a kernel is made of, and when its hash changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from convoy import paths
from convoy.backends.kernels import sources
from convoy.backends.kernels.kernel import Kernel
from convoy.backends.kernels.sm90.small import SmallConvKernel


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "codegen_dir", lambda: tmp_path)
    monkeypatch.setattr(paths, "include_dir", lambda: tmp_path / "include")
    for name, text in {
        "cutlass/one.cuh": '#include "shared.cuh"\n#include "cutlass/not_ours.h"\nint one;\n',
        "cutlass/two.cuh": '#include <cuda.h>\n#include "convoy/abi.h"\nint two;\n',
        "cutlass/shared.cuh": '#include "convoy/abi.h"\n#include "one.cuh"\n',
        "include/convoy/abi.h": "int abi;\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def _changed(folder: Path, name: str, text: str) -> set[str]:
    """The headers whose hash changes with the text of a file."""
    sources.source_hashes.cache_clear()
    before = sources.source_hashes()
    (folder / name).write_text(text)
    sources.source_hashes.cache_clear()
    after = sources.source_hashes()
    sources.source_hashes.cache_clear()
    return {header for header in after if after[header] != before.get(header)}


def test_includes_are_expanded_even_in_a_circle(folder: Path) -> None:
    code = sources.code(folder / "cutlass/one.cuh")
    assert code == 'int abi ; # include "cutlass/not_ours.h" int one ;'


def test_a_hash_follows_what_is_included_and_nothing_else(folder: Path) -> None:
    every = {"cutlass/one.cuh", "cutlass/two.cuh", "cutlass/shared.cuh"}
    assert _changed(folder, "cutlass/two.cuh", "int other;\n") == {"cutlass/two.cuh"}
    assert _changed(folder, "cutlass/new.cuh", "int new_;\n") == {"cutlass/new.cuh"}
    assert _changed(folder, "cutlass/shared.cuh", "int s;\n") == every - {"cutlass/two.cuh"}
    assert _changed(folder, "include/convoy/abi.h", "int changed;\n") == set()


def test_comments_and_spacing_do_not_count(folder: Path) -> None:
    spaced = '#include <cuda.h>\n\n#include "convoy/abi.h" // ABI\nint  two;\n'
    assert _changed(folder, "cutlass/two.cuh", spaced) == set()


def test_names_of_files_and_how_code_is_divided_do_not_count(folder: Path) -> None:
    before = sources.code(folder / "cutlass/one.cuh")
    (folder / "cutlass/part.cuh").write_text("#pragma once\n/* moved\nhere */ int one;\n")
    moved = '#pragma once\n#include "shared.cuh"\n#include "cutlass/not_ours.h"\n'
    renamed = folder / "cutlass/renamed.cuh"
    renamed.write_text(moved + '#include "part.cuh"\n')
    (folder / "cutlass/shared.cuh").write_text('#include "convoy/abi.h"\n')
    assert sources.code(renamed) == before
    (folder / "cutlass/part.cuh").write_text("int two;\n")
    assert sources.code(renamed) != before


def test_a_comment_sign_within_a_string_is_code(folder: Path) -> None:
    text = '#include <cuda.h>\n#include "convoy/abi.h"\nint two; auto s = "a // b";\n'
    assert _changed(folder, "cutlass/two.cuh", text) == {"cutlass/two.cuh"}
    assert _changed(folder, "cutlass/two.cuh", text.replace("// b", "// c")) == {"cutlass/two.cuh"}


def test_every_kernel_of_the_project_has_a_source() -> None:
    found = sources.source_hashes()
    assert {"cutlass/sm80_conv.cuh", "cutlass/sm90_gemm.cuh"} <= found.keys()
    assert "sm90/stem_fprop_library.cuh" in found
    assert found["cutlass/sm90_conv.cuh"] != found["cutlass/sm90_gemm.cuh"]


@pytest.mark.parametrize(
    ("kernel", "beside"),
    [
        (SmallConvKernel("float16", "gelu"), ["gelu16.cuh"]),
        (SmallConvKernel("bfloat16", "gelu"), ["gelu16.cuh"]),
        (SmallConvKernel("float32", "gelu"), []),
        (SmallConvKernel("float16", "gelu", True), []),
        (SmallConvKernel("float16", "silu", True), []),
    ],
)
def test_what_a_source_includes_beside_its_header(kernel: Kernel, beside: list[str]) -> None:
    own, *others = sources.headers(kernel)
    assert own.name == Path(kernel.header).name and [path.name for path in others] == beside

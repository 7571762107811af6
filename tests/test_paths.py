"""Files that travel with convoy, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

import convoy
from convoy import paths
from convoy.errors import LibraryMissing


def test_in_a_checkout() -> None:
    assert paths.source_root() == Path(__file__).resolve().parents[1]
    assert (paths.include_dir() / "convoy" / "kernel_abi.h").is_file()
    assert paths.records_dir().is_dir()
    assert paths.install_command() == f'pip install -e "{paths.source_root()}"'
    assert paths.install_command("cudnn") == f'pip install -e "{paths.source_root()}[cudnn]"'


def test_an_editable_install_adds_no_folder_above_the_checkout() -> None:
    """scikit-build-core puts the folder that a package's dotted name starts from on Python's path:
    for ``convoy/share/codegen = codegen`` that is two above the checkout, where a folder named
    torch was imported as PyTorch."""
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    for package, folder in project["tool"]["scikit-build"]["wheel"]["packages"].items():
        assert len(Path(package).parts) < len(Path(folder).parts)


def test_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "convoy"
    monkeypatch.setattr(paths, "__file__", str(package / "paths.py"))
    paths.source_root.cache_clear()
    try:
        assert paths.source_root() is None
        assert paths.codegen_dir() == package / "share" / "codegen"
        assert paths.records_dir() == package / "share" / "tuning" / "records"
        assert paths.install_command() == 'pip install "tvm-convoy" --force-reinstall'
        assert paths.install_command("cudnn") == 'pip install "tvm-convoy[cudnn]"'
    finally:
        paths.source_root.cache_clear()


def test_runtime_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVOY_RUNTIME_LIBRARY", raising=False)
    monkeypatch.setattr(convoy, "__path__", [str(tmp_path)])
    monkeypatch.setattr(paths, "source_root", lambda: None)
    with pytest.raises(LibraryMissing, match="CONVOY_RUNTIME_LIBRARY"):
        paths.runtime_library()
    library = tmp_path / "lib" / paths.RUNTIME_LIBRARY
    library.parent.mkdir()
    library.touch()
    assert paths.runtime_library() == library
    monkeypatch.setenv("CONVOY_RUNTIME_LIBRARY", str(tmp_path / "other.so"))
    with pytest.raises(LibraryMissing, match=r"other\.so"):
        paths.runtime_library()


@pytest.mark.parametrize(
    ("variable", "function"),
    [("CONVOY_CACHE_DIR", paths.cache_dir), ("CONVOY_DATA_DIR", paths.data_dir)],
)
def test_own_folders(variable: str, function, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "~/elsewhere")
    assert function() == Path.home() / "elsewhere"
    monkeypatch.delenv(variable)
    assert function().name == "convoy"

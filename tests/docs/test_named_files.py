"""Files that the pages name or quote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("tuning/**/*.md"),
        ROOT / "benchmarks" / "README.md",
    }
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_quoted_code_is_in_its_file(page: Path) -> None:
    """A block that opens with ```python file=PATH is a part of that file, word for word."""
    quoted = re.findall(
        r"^```\w+ file=(\S+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    for path, code in quoted:
        assert code in (ROOT / path).read_text(), f"{name_of(page)} quotes {path}"


def mentioned_files(page: Path) -> list[str]:
    """Paths in code spans: from the root, or, as pages shorten them, from the package."""
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    spans = re.findall(r"`([\w./*-]+/[\w./*-]*|[\w/*]+\.(?:py|cuh|cc|h))`", prose)
    return [span for span in spans if not span.startswith((".", "/"))]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_are_named_exist(page: Path) -> None:
    package = ROOT / "python" / "convoy"
    roots = [ROOT, package, package / "relay", ROOT / "docs", page.parent]
    for span in mentioned_files(page):
        found = any(list(root.glob(span.rstrip("/"))) for root in roots)
        if "/" not in span:  # a file name alone: of the sources, of the tests or near the page
            near = [ROOT / top for top in ("python", "codegen", "tests", "scripts")] + [page.parent]
            found = found or any(list(folder.rglob(span)) for folder in near)
        assert found, f"{name_of(page)} names {span}"


def test_the_architecture_page_has_every_folder() -> None:
    page = (ROOT / "docs" / "design" / "architecture.md").read_text()
    package = ROOT / "python" / "convoy"
    for folder in (path.parent for path in package.glob("*/__init__.py")):
        assert f"| `{folder.name}/` |" in page, folder.name
    for folder in (ROOT / "codegen").iterdir():
        assert f"`codegen/{folder.name}/`" in page, folder.name


def test_pages_that_sources_name_exist() -> None:
    for top in ("python", "codegen", "scripts", "tuning", "examples"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in (".py", ".cuh", ".h", ".cc"):
                for page in re.findall(r"\bdocs/[\w/.-]+\.md", path.read_text()):
                    assert (ROOT / page).is_file(), f"{path.relative_to(ROOT)} names {page}"


def test_the_environment_page_has_every_variable() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    sources = [*ROOT.glob("python/convoy/**/*.py"), *ROOT.glob("codegen/runtime/*.cc")]
    read = {
        name for path in sources for name in re.findall(r'"(CONVOY_[A-Z_]+)"', path.read_text())
    }
    assert read == set(re.findall(r"`(CONVOY_[A-Z_]+)`", page))

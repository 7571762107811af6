"""The command ``convoy config``: flags to compile and run programs that use ``convoy.h``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import paths
from .output import say


def config(
    cflags: Annotated[bool, typer.Option("--cflags", help="Print only compiler flags.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Print only linker flags.")] = False,
    library_path: Annotated[
        bool, typer.Option("--library-path", help="Print only folders for LD_LIBRARY_PATH.")
    ] = False,
) -> None:
    """Print the flags for programs that run compiled networks through the C API."""
    folders = library_folders()
    compile_flags = f"-I{paths.include_dir()}"
    # An RPATH, unlike a RUNPATH, also applies to dependences of the linked libraries.
    search = [f"-L{folder} -Wl,-rpath,{folder}" for folder in folders]
    link_flags = " ".join(["-Wl,--disable-new-dtags", *search, "-lconvoy_runtime", "-ltvm_ffi"])
    if cflags or libs:
        say(" ".join([compile_flags] * cflags + [link_flags] * libs))
    if library_path:
        say(":".join(map(str, folders)))
    if not (cflags or libs or library_path):
        say(f"compile: {compile_flags}", f"link: {link_flags}")
        say(f"LD_LIBRARY_PATH: {':'.join(map(str, folders))}")


def library_folders() -> list[Path]:
    """Folders of libconvoy_runtime.so, libtvm_ffi.so, libtvm_runtime.so and CUDA's libraries."""
    import tvm_ffi.libinfo

    from ..runtime.library import locations

    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi()).resolve().parent
    found = [paths.runtime_library().parent, ffi, ffi.parents[1] / "tvm" / "lib"]
    found += [Path(path).parent for path in locations().values() if path]
    return [folder for folder in dict.fromkeys(found) if folder.is_dir()]

"""Find what pip has installed: versions of distributions, and files of NVIDIA's wheels."""

from __future__ import annotations

from . import paths


def version_of(*distributions: str) -> str:
    """Return the version of the first one that is installed; empty if none is."""
    import importlib.metadata  # which takes longer than all else that ``import convoy`` does

    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def nvidia_file(*relative: str) -> str:
    """Return the path of the first file that an ``nvidia-*`` wheel has under one of these names;
    empty if there is none."""
    folders = paths.nvidia_wheels()
    found = (folder / name for name in relative for folder in folders)
    return next((str(path) for path in found if path.is_file()), "")

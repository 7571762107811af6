"""Command lines that start Python without the working directory on its module path.

``python -m`` and ``python -c`` put the working directory first on ``sys.path``: a ``json.py`` in a
downloaded folder would run in its place. ``-P`` prevents that from Python 3.11 on only, so the
first statement of the child removes the entry, before anything is imported from a file.
``PYTHONPATH`` counts as ever.
"""

from __future__ import annotations

import sys

#: Until a child has loaded TVM and CUDA, on a busy machine.
START_TIMEOUT_S = 180.0

_CLEAN_PATH = "import sys; sys.path[:] = [folder for folder in sys.path if folder]\n"
_RUN_MODULE = "import runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)\n"


def python_code(code: str, *arguments: str) -> list[str]:
    """Return the command that runs Python source text; ``arguments`` become ``sys.argv[1:]``."""
    return [sys.executable, "-c", _CLEAN_PATH + code, *arguments]


def python_module(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module as ``python -m`` does."""
    return python_code(_RUN_MODULE.format(module), *arguments)

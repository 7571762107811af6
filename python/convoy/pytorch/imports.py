"""Import PyTorch's tracer and TVM in less time."""

from __future__ import annotations

import sys
import threading

from ..threads import uncollected


def import_all() -> None:
    """Import what ``convoy.compile`` needs, and meanwhile prepare TVM's first stack trace.

    TVM raises C++ errors while it is imported, and catches them. Each takes a stack trace. The
    first one of a process reads the symbol tables of all loaded libraries: 0.8 s with PyTorch for
    CUDA, and more where the files are not in memory yet. One that nobody looks at is therefore
    taken in a thread while Python imports the tracer.
    """
    if "tvm" in sys.modules:
        return
    with uncollected():
        import tvm_ffi

        # A call by ctypes leaves the GIL to other threads.
        reader = threading.Thread(target=tvm_ffi.LIB.TVMFFIBacktrace, args=(None, 0, None, 1))
        reader.start()
        try:
            import torch.export._trace  # noqa: F401
        finally:
            reader.join()
        from . import module  # noqa: F401

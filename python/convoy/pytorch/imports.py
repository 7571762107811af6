"""What ``convoy.compile`` imports, in less time."""

from __future__ import annotations

import sys
import threading

from ..threads import uncollected


def import_all() -> None:
    """Import PyTorch's tracer, and TVM behind it, which waits for a thread.

    TVM raises C++ errors while it is imported. The first one reads the symbol tables of all loaded
    libraries for its stack trace, which takes 0.8 s with PyTorch for CUDA, and more where the files
    are not in memory yet. The thread takes a stack trace while Python imports the tracer.
    """
    if "tvm" in sys.modules:
        return
    with uncollected():
        import tvm_ffi

        # Called by ctypes, it leaves the GIL to other threads.
        stack_trace = tvm_ffi.LIB.TVMFFIBacktrace
        reader = threading.Thread(target=stack_trace, args=(None, 0, None, 1))
        reader.start()
        try:
            import torch.export._trace  # noqa: F401
        finally:
            reader.join()
        from . import module  # noqa: F401

"""`tvm.autotvm.tophub`: logs that TVM's developers published, which have no effect."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from convoy.relay.removed import removed_names


def context(target: Any, extra_files: Any = None) -> AbstractContextManager[None]:
    """Return a context that changes nothing, with a warning."""
    del target, extra_files
    warnings.warn("TVM's tuning logs have no effect; Convoy ships records of its own", stacklevel=2)
    return nullcontext()


__getattr__ = removed_names("autotvm.tophub")

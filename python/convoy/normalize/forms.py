"""The normal forms of a network among which a placement is selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm

from .normal_form import normalize


def normal_forms(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, precision: str
) -> Iterator[tvm.IRModule]:
    """Normalize a network; in 16 bits also with other presentations of its first convolution:
    space to depth, and padded channels."""
    yield normalize(mod, params, dtype=precision)
    if precision in ("float16", "bfloat16"):
        yield normalize(mod, params, dtype=precision, space_to_depth=True)
        yield normalize(mod, params, dtype=precision, pad_channels=1)

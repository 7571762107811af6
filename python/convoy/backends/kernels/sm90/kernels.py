"""All kernels of ``codegen/sm90``."""

from __future__ import annotations

import reprlib
from typing import Any

from ....errors import InvalidOption
from .dgrad import DgradKernel
from .stem import StemDgradKernel, StemFpropKernel, StemWgradKernel

Sm90Kernel = DgradKernel | StemDgradKernel | StemFpropKernel | StemWgradKernel

_KINDS = (DgradKernel, StemDgradKernel, StemFpropKernel, StemWgradKernel)


def kernel_from_json(data: Any) -> Sm90Kernel:
    """Inverse of ``to_json``; raises InvalidOption on unknown families or fields."""
    if not isinstance(data, dict):
        raise InvalidOption(f"kernel {reprlib.repr(data)}", "a JSON object")
    fields = dict(data)
    family = fields.pop("family", None)
    for kind in _KINDS:
        if kind.family == family:
            return kind.from_json(fields)
    families = ", ".join(kind.family for kind in _KINDS)
    raise InvalidOption(f"kernel family {reprlib.repr(family)}", f"one of {families}")

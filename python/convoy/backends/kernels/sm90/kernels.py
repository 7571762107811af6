"""All kernels of ``codegen/sm90``."""

from __future__ import annotations

from typing import Any

from ....errors import InvalidOption
from .dgrad import DgradKernel
from .stem import StemDgradKernel, StemFpropKernel, StemWgradKernel

Sm90Kernel = DgradKernel | StemDgradKernel | StemFpropKernel | StemWgradKernel

_KINDS = (DgradKernel, StemDgradKernel, StemFpropKernel, StemWgradKernel)


def kernel_from_json(data: dict[str, Any]) -> Sm90Kernel:
    """Inverse of ``to_json``; raises InvalidOption on unknown families or fields."""
    fields = dict(data)
    family = fields.pop("family", None)
    for kind in _KINDS:
        if kind.family == family:
            try:
                return kind.from_json(fields)
            except TypeError as error:
                raise InvalidOption(f"kernel description {data}", f"its fields ({error})") from None
    families = ", ".join(kind.family for kind in _KINDS)
    raise InvalidOption(f"kernel family {family!r}", f"one of {families}")

"""The normal forms of a network among which a placement is selected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import tvm

from ..ir.dtypes import HALF_DTYPES
from .normal_form import normalize_but_stems, with_stems


def normal_forms(
    mod: tvm.IRModule, params: Mapping[str, object] | None, precision: str, arch: int = 0
) -> Iterator[tvm.IRModule]:
    """Normalize a network for a GPU (``arch``: compute capability times ten; 0 for a CPU); in 16
    bits also with other presentations of its first convolution: pixels or columns as channels, and
    unpadded. A form equal to the first one is left out."""
    shared = normalize_but_stems(mod, params, precision, arch)
    padded, changed = with_stems(shared)
    yield padded
    if precision in HALF_DTYPES:
        folded, presents_anew = with_stems(shared, pixels_as_channels=True)
        if presents_anew:
            yield folded
        if changed:
            yield with_stems(shared, pad_channels=1)[0]

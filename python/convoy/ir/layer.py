"""Names of a network's layers."""

from __future__ import annotations

import re

_WEIGHT = re.compile(r"[._/:]*(weights?|kernel)$", re.IGNORECASE)


def layer_name(weight: str) -> str:
    """Name of the layer with that weight: ``body.0.conv`` of ``body.0.conv.weight``.

    Empty where the name says nothing but that it is a weight.
    """
    return _WEIGHT.sub("", weight)

"""Names of a network's layers."""

from __future__ import annotations

import re

_WEIGHT = re.compile(r"[._/:]*(weights?|kernel)$", re.IGNORECASE)


def layer_name(weight: str) -> str:
    """Name of the layer of a weight: ``body.0.conv`` for ``body.0.conv.weight``. Empty if the name
    only states that it is a weight."""
    return _WEIGHT.sub("", weight)

"""Distance of a result from the expected one."""

from __future__ import annotations

import numpy as np


def l2_error(got: np.ndarray, want: np.ndarray) -> float:
    """Relative L2 error, computed in float64."""
    exact = want.astype("float64")
    return float(np.linalg.norm(got.astype("float64") - exact) / np.linalg.norm(exact))

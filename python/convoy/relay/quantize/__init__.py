"""`relay.quantize`: networks of floating-point numbers as networks of 8-bit integers.

    with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
        mod = relay.quantize.quantize(mod, params, dataset)

The inputs of convolutions and GEMMs are rounded to integers with a scale for each tensor, which
calibration finds; what lies between is computed in integers as far as rules for it exist (see
`relay.transform.FakeQuantizationToInteger`).
"""

from convoy.relay.binding import bind_params_by_name as _bind_params
from convoy.relay.quantize.config import QConfig, current_qconfig, qconfig
from convoy.relay.quantize.passes import (
    annotate,
    calibrate,
    prerequisite_optimize,
    quantize,
    realize,
)

__all__ = [
    "_bind_params",
    "QConfig",
    "annotate",
    "calibrate",
    "current_qconfig",
    "prerequisite_optimize",
    "qconfig",
    "quantize",
    "realize",
]

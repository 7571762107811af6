"""`relay.op.strategy`: what strategies of operators are written with.

Those of TVM's own operators were removed; `relay.op.register_strategy` registers one for an
operator of a script.
"""

from convoy.relay.op.strategy import generic
from convoy.relay.op.strategy.generic import (
    naive_schedule,
    override_native_generic_func,
    wrap_topi_schedule,
)
from convoy.relay.removed import removed_names

__all__ = ["generic", "naive_schedule", "override_native_generic_func", "wrap_topi_schedule"]

__getattr__ = removed_names("relay.op.strategy")

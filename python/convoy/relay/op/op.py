"""`relay.op.op`: what users register for operators, under the module's former path."""

from convoy.relay.registration import *  # noqa: F403
from convoy.relay.registration import __all__ as __all__

"""`relay.op.transform`: operators of `relay` under a former path."""

from convoy.relay.op.tensor import *  # noqa: F403

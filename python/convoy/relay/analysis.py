"""`relay.analysis`: questions about expressions."""

from convoy.relay.visit import bound_vars, free_vars, post_order_visit

__all__ = ["bound_vars", "free_vars", "post_order_visit"]

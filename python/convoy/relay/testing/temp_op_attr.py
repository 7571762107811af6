"""`relay.testing.temp_op_attr`: TempOpAttr under its former path."""

from convoy.relay.testing.checks import TempOpAttr

__all__ = ["TempOpAttr"]

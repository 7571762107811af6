"""Classic networks as Relay modules, under the names of `tvm.relay.testing`.

Each has `get_net(...)`, a function, and `get_workload(...)`, a module with random parameters.
"""

from convoy.relay.testing import resnet
from convoy.relay.testing.init import Constant, Initializer, Xavier, create_workload

__all__ = ["Constant", "Initializer", "Xavier", "create_workload", "resnet"]

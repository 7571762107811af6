"""The graph executor's interface of TVM 0.18 over a compiled module.

lib = relay.build(mod, target="cuda", params=params)
module = graph_executor.GraphModule(lib["default"](dev))
module.set_input("data", x)
module.run()
y = module.get_output(0).numpy()
"""

from .factory import GraphExecutorFactoryModule, create
from .module import Executor, GraphModule, InputNotFound, timed

__all__ = [
    "Executor",
    "GraphExecutorFactoryModule",
    "GraphModule",
    "InputNotFound",
    "create",
    "timed",
]

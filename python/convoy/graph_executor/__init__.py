"""The graph executor's interface of TVM 0.18 over a compiled module.

lib = relay.build(mod, target="cuda", params=params)
module = graph_executor.GraphModule(lib["default"](dev))
module.set_input("data", x)
module.run()
y = module.get_output(0).numpy()
"""

from convoy.graph_executor.factory import GraphExecutorFactoryModule, create
from convoy.graph_executor.module import Executor, GraphModule, InputNotFound

__all__ = ["Executor", "GraphExecutorFactoryModule", "GraphModule", "InputNotFound", "create"]

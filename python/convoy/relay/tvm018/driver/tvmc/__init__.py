"""`tvm.driver.tvmc`: loading, tuning, compiling and running a model in four calls.

    model = tvmc.load("resnet50.onnx")
    tvmc.tune(model, target="cuda")
    package = tvmc.compile(model, target="cuda")
    result = tvmc.run(package, device="cuda")

The command line is Convoy's own, `convoy`.
"""

from convoy.relay.removed import removed_names
from convoy.relay.tvm018.driver.tvmc.compiler import compile
from convoy.relay.tvm018.driver.tvmc.model import TVMCModel, TVMCPackage, load
from convoy.relay.tvm018.driver.tvmc.runner import TVMCResult, run
from convoy.relay.tvm018.driver.tvmc.tuner import tune

__all__ = ["TVMCModel", "TVMCPackage", "TVMCResult", "compile", "load", "run", "tune"]

__getattr__ = removed_names("driver.tvmc")

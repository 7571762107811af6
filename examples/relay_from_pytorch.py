"""Import a PyTorch model as Relay, traced and exported, and compare with PyTorch.

    python examples/relay_from_pytorch.py                # on the CPU
    python examples/relay_from_pytorch.py --target cuda

The model is a small residual network with weights of a seed, so that nothing is downloaded.
"""

import argparse

import numpy as np
import torch
from torch import nn

from convoy import graph_executor, relay
from convoy.relay import tvm018 as tvm

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--target", default="llvm", help="llvm or cuda")
arguments = parser.parse_args()


class Block(nn.Module):
    """Two convolutions with a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.body(x))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.MaxPool2d(2), Block(16),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
).eval()  # fmt: skip
x = torch.randn(2, 3, 32, 32)
want = model(x).detach().numpy()

graphs = {
    "traced": torch.jit.trace(model, x),
    "exported": torch.export.export(model, (x,)),
}
for how, graph in graphs.items():
    mod, params = relay.frontend.from_pytorch(graph, [("input0", tuple(x.shape))])
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=arguments.target, params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.device(arguments.target, 0)))
    module.set_input("input0", tvm.nd.array(x.numpy()))
    module.run()
    error = float(np.abs(module.get_output(0).numpy() - want).max())
    print(f"{how}: {len(params)} parameters, largest difference to PyTorch {error:.1e}")
    if error > 1e-3:
        raise SystemExit("the outputs differ")

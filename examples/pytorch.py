"""Compile a PyTorch network in one line: several batch sizes, weights that change, torch.compile.

    python examples/pytorch.py                 # on the GPU where there is one
    python examples/pytorch.py --device cpu --batch 1 4

Every result is compared with PyTorch's own; times are those of a call from Python.
"""

from __future__ import annotations

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import convoy
from convoy.pytorch.dynamo import subgraphs


class Block(nn.Module):
    """A residual block with an inverted bottleneck."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.SiLU(),
            nn.Conv2d(2 * channels, channels, 3, padding=1),
        )

    def forward(self, x):
        return torch.relu(self.body(x) + x)


class Network(nn.Module):
    """Class scores and the features that they come from."""

    def __init__(self, channels: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(channels), Block(channels))
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        features = self.blocks(self.stem(x))
        return {"features": features, "scores": self.head(features.mean((2, 3)))}


def microseconds(call, x, device) -> float:
    for _ in range(5):
        call(x)
    start = time.perf_counter()
    for _ in range(20):
        call(x)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) / 20 * 1e6


def error(got, want) -> float:
    """Largest difference, relative to the largest value."""
    return max(float((got[k] - want[k]).abs().max() / want[k].abs().max()) for k in want)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--image", type=int, default=32)
    args = parser.parse_args()
    device, image = torch.device(args.device), args.image

    torch.manual_seed(0)
    net = Network().eval().to(device, torch.float16 if device.type == "cuda" else torch.float32)

    def sample(batch: int) -> torch.Tensor:
        dtype = next(net.parameters()).dtype
        return torch.randn(batch, 3, image, image, device=device, dtype=dtype)

    fast = convoy.compile(net, sample(1), batch=args.batch)
    table = Table("batch", "error", "PyTorch, us", "Convoy, us", title="convoy.compile")
    for batch in range(1, max(args.batch) + 1, max(1, max(args.batch) // 4)):
        x = sample(batch)
        times = [f"{microseconds(call, x, device):.0f}" for call in (net, fast)]
        table.add_row(str(batch), f"{error(fast(x), net(x)):.1e}", *times)
    Console().print(table)

    net.head.weight.mul_(2)
    fast.update_parameters()
    x = sample(1)
    print(f"after a change of weights: error {error(fast(x), net(x)):.1e}")

    fast.export("network.so")
    print(f"network.so: batch sizes {[s.meta.inputs[0].shape[0] for s in loaded()]}")

    dynamo = torch.compile(net, backend="convoy")
    print(f"torch.compile: error {error(dynamo(x), net(x)):.1e}")
    for subgraph in subgraphs():
        print(subgraph)


def loaded():
    return convoy.load("network.so").sessions()


if __name__ == "__main__":
    main()

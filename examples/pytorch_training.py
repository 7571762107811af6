"""Train a PyTorch module with a compiled step: forward, backward and optimizer in one function.

    python examples/pytorch_training.py                 # on the GPU where there is one
    python examples/pytorch_training.py --device cpu --steps 5

The losses are printed beside PyTorch's own; at the end the module has the trained parameters.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn

from convoy.pytorch.training import compile_training_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 4 * 4, 10),
    ).to(args.device)  # fmt: skip
    images = torch.randn(16, 3, 8, 8, device=args.device)
    labels = torch.randint(0, 10, (16,), device=args.device)
    loss = nn.functional.cross_entropy

    eager = copy.deepcopy(net)
    theirs = torch.optim.SGD(eager.parameters(), lr=0.05, momentum=0.9)
    ours = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    step = compile_training_step(net, loss, ours, images, labels)
    for number in range(args.steps):
        theirs.zero_grad()
        expected = loss(eager(images), labels)
        expected.backward()
        theirs.step()
        print(f"step {number}: loss {float(step(images, labels)):.6f}, PyTorch {expected:.6f}")

    step.update_module()
    pairs = zip(net.parameters(), eager.parameters(), strict=True)
    difference = max(float((a - b).detach().abs().max()) for a, b in pairs)
    print(f"parameters differ by {difference:.1e}")


if __name__ == "__main__":
    main()

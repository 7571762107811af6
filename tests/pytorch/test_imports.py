"""What is imported for the first compilation of a process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

# In a process of its own: this one has imported all of it.
_PROGRAM = """
import gc, sys, threading
import torch
import convoy

traces = []

class Recorded(threading.Thread):
    def run(self):
        traces.append(("tvm" in sys.modules, gc.isenabled()))
        super().run()

threading.Thread = Recorded
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
x = torch.randn(1, 3, 8, 8)
torch.testing.assert_close(convoy.compile(net, x)(x), net(x).detach(), rtol=1e-3, atol=1e-3)
assert traces[0] == (False, False), traces
assert gc.isenabled()
left_out = ("torch._export.converter", "convoy.pytorch.training_graph", "deap", "scipy")
assert not [name for name in left_out if name in sys.modules]
"""


def test_a_first_compilation_imports_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr

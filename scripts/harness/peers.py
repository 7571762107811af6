"""Other ways to run the same networks on a GPU, each in a process of its own."""

from __future__ import annotations

from . import training
from .networks import NETWORKS
from .prepared import Prepared, ready
from .rows import Row
from .systems import command

PEERS = ("eager", "compile", "xla", *training.PEERS)


def worker(system: str, network: str, batch: int) -> Prepared:
    """A process that times a peer."""
    return Prepared(command(task="peer", system=system, network=network, batch=batch))


def work(system: str, network: str, batch: int) -> list[Row]:
    """Time a peer; returns its rows, ``skipped`` with a reason where it has not the network.

    Eager mode is tuned by measuring, so all of it waits for its turn; compiling does not.
    """
    known = NETWORKS[network]
    if system == "xla":
        if known.torchvision != "resnet50":
            return [{"skipped": "the JAX network is written for resnet50_v1 alone"}]
        ready()
        from . import xla

        return [xla.resnet50(batch).to_json()]
    if system in training.PEERS:
        if network != "resnet50_training":
            return [{"skipped": "for resnet50_training alone"}]
        ready()
        return [training.peer(system, batch)]
    if not known.torchvision:
        return [{"skipped": "torchvision lacks it"}]
    import torchvision  # noqa: F401  before its turn

    from . import torch_inference

    if system == "compile":
        return [torch_inference.compiled(known.torchvision, batch, before=ready).to_json()]
    ready()
    return [torch_inference.eager_under_graph(known.torchvision, batch).to_json()]

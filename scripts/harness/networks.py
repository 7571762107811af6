"""The networks that the benchmarks run, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.benchmark_networks import irregular, resnet50_backward

from . import pair, training

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Network:
    """A network and all that timing it needs.

    Attributes:
        make: The Relax module of a batch size, random parameters bound; none: peers only.
        torchvision: The name of the same network in torchvision; empty if that lacks it.
        inputs: Values of its inputs by name, where random ones will not do.
        exact: The outputs in float64 by an independent implementation; None if that is not
            installed.
        probe: More cells for the row of a compiled module.
    """

    make: Callable[[int], Any] | None
    torchvision: str = ""
    inputs: Callable[[int], dict[str, Array]] = lambda batch: {}
    exact: Callable[[int, list[Array]], list[Array] | None] | None = None
    probe: Callable[[int, Any], dict[str, Any]] = lambda batch, built: {}


def network(name: str, batch: int) -> Any:
    """A Relax module by name. Raises KeyError for an unknown one."""
    make = NETWORKS[name].make
    if make is None:
        raise ValueError(f"{name} is a network of the peers alone")
    return make(batch)


def _testing(family: str, **options: Any) -> Callable[[int], Any]:
    """A network of ``convoy.relay.testing``."""

    def make(batch: int) -> Any:
        from convoy.relay import testing
        from convoy.relay.convert import to_relax

        module, params = getattr(testing, family).get_workload(batch_size=batch, **options)
        return to_relax(module, params)

    return make


def _resnet50_exact(**options: Any) -> Callable[[int, list[Array]], list[Array] | None]:
    """PyTorch's float64 output for Relay's ResNet-50 with these options of its layout."""

    def exact(batch: int, inputs: list[Array]) -> list[Array] | None:
        try:
            import torch

            from .torch_inference import resnet50_v2_from
        except ImportError:
            return None
        from convoy.relay import testing

        _, made = testing.resnet.get_workload(batch_size=batch, num_layers=50, **options)
        params, (x,) = {name: value.numpy() for name, value in made.items()}, inputs
        if options:  # NHWC, HWIO
            x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
            params = {
                name: p.transpose(3, 2, 0, 1).copy() if p.ndim == 4 else p
                for name, p in params.items()
            }
        model = resnet50_v2_from(params, torch.float64)
        with torch.no_grad():
            parts = [
                model(torch.from_numpy(part).double().cuda())
                for part in np.array_split(x, max(1, batch // 8))
            ]
            return [torch.cat(parts).cpu().numpy()]

    return exact


_NHWC = {"image_shape": (224, 224, 3), "layout": "NHWC"}
#: Relay's resnet50 is the pre-activation network (v2), of which the peers have a port.
NETWORKS: dict[str, Network] = {
    "resnet50": Network(_testing("resnet", num_layers=50), "resnet50_v2", exact=_resnet50_exact()),
    "resnet50_nhwc": Network(
        _testing("resnet", num_layers=50, **_NHWC), exact=_resnet50_exact(**_NHWC)
    ),
    "inception_v3": Network(_testing("inception_v3"), "inception_v3"),
    "googlenet": Network(_testing("googlenet"), "googlenet"),
    "squeezenet": Network(_testing("squeezenet", version="1.1"), "squeezenet1_1"),
    "densenet121": Network(_testing("densenet"), "densenet121"),
    "resnext50": Network(_testing("resnext"), "resnext50_32x4d"),
    "randwire": Network(irregular.randwire),
    "nasnet_cell": Network(irregular.nasnet_cell),
    "conv_pair": Network(pair.module, exact=pair.exact),
    "conv_pair20": Network(
        lambda batch: pair.module(batch, 20), exact=lambda batch, x: pair.exact(batch, x, 20)
    ),
    "resnet50_backward": Network(resnet50_backward.chain),
    "resnet50_training": Network(training.module, inputs=training.inputs, probe=training.probe),
    "resnet50_v1": Network(None, "resnet50"),  # torchvision's, which XLA's is as well
}
#: What ``--networks all`` stands for.
INFERENCE = (
    "resnet50", "inception_v3", "googlenet", "squeezenet", "densenet121", "resnext50", "randwire",
    "nasnet_cell",
)  # fmt: skip

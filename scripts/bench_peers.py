"""Time the peers alone: PyTorch eager under a CUDA graph, torch.compile, XLA through JAX.

python scripts/bench_peers.py --models resnet50 resnet50_v2 --batches 1 8 256 --out peers.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["resnet50", "resnet50_v2"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 256])
    parser.add_argument("--systems", nargs="+", default=["eager", "compile", "xla"])
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    rows = []
    for model in args.models:
        for batch in args.batches:
            for system in args.systems:
                rows.append(time_peer(system, model, batch))
                print(rows[-1], flush=True)
                if args.out:
                    Path(args.out).write_text(json.dumps(rows, indent=1))


def time_peer(system: str, model: str, batch: int, **options: object) -> dict[str, object]:
    """A row of figures; ``options`` go to the function that times the peer."""
    row: dict[str, object] = {"system": system, "model": model, "batch": batch}
    try:
        if system == "xla":
            from peers import xla

            if model != "resnet50":
                return {**row, "skipped": "the JAX network is written for resnet50 only"}
            timing = xla.resnet50(batch)
        else:
            from peers import pytorch

            run = pytorch.eager_under_graph if system == "eager" else pytorch.compiled
            timing = run(model, batch, **options)
        return {**row, **timing.to_json()}
    except Exception as err:  # a peer that fails must not end the comparison
        return {**row, "failed": f"{type(err).__name__}: {err}"[:300]}


if __name__ == "__main__":
    main()

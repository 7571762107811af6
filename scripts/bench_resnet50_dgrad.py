#!/usr/bin/env python3
"""Time ResNet-50's convolutions: bench_layers.py, whose default list is ResNet-50's.

python scripts/bench_resnet50_dgrad.py --ops dgrad --batches 8 256 --out resnet50-dgrad
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_layers import main, parser

__all__ = ["main", "parser"]

if __name__ == "__main__":
    sys.exit(main())

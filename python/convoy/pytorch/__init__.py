"""PyTorch modules compiled by :mod:`convoy`: :func:`convoy.compile` and a backend of
``torch.compile``. Importing this package does not import torch."""

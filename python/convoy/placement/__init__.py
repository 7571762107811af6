"""Choosing backend and kernel of every subgraph by the cost that counts for the way it will run."""

"""Choosing backend and kernel of every region by the cost that counts for the way it will run."""

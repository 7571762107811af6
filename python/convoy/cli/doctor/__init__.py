"""``convoy doctor``: what is usable on this machine, and what to install."""

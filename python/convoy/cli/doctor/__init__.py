"""``convoy doctor``: report usable and missing components, and how to install them."""

"""Cache of compiled modules: repeating a build takes a second or two."""

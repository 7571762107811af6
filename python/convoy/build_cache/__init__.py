"""Compiled modules of earlier builds: the same build again takes a second or two."""

"""Measuring candidates: the protocol, the environment that figures belong to, and their records."""

"""Evaluation of Relay programs that no graph holds: closures, recursion, data types, references."""

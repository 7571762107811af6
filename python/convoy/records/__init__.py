"""The database of measurements: JSON lines, found by workload, candidate and environment.

A :class:`~convoy.records.store.RecordStore` reads the files that ship with the package and the
user's own, and appends what is measured. The format is in docs/reference/records.md.
"""

"""Autotuning: measure candidates of workloads into records.

:func:`~convoy.tune.autotune.autotune` gets workloads and a budget. A search strategy chooses among
the candidates that backends propose; an executor compiles and measures them in processes of their
own.
"""

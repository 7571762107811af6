"""Tuning under the names of TVM 0.18: tasks, tuners and logs over Convoy's own tuner.

A task is a workload of the network, a trial one of its candidates, and a log a file of Convoy's
records. `tvm018.autotvm`, `auto_scheduler` and `meta_schedule` give them TVM's names.
"""

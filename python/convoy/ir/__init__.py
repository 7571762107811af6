"""Plain data that the steps of a build exchange: workloads, candidates, measurements, plans,
schedules.

Each type compares by value, prints, and reads and writes JSON. Nothing here imports TVM.
"""

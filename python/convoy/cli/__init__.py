"""The ``convoy`` command: a file for each subcommand, which parses options and prints results.

What a subcommand does is in the package that it calls.
"""

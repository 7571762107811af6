"""Cache of compiled modules, in files named by the hash of all inputs of their build.

A build that was done before loads its module in a second or two.
"""

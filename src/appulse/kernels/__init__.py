"""Compiled kernels: flat arrays in, flat arrays out. No classes, no input or output, no pandas.

Every kernel has a slow, obvious twin in ``tests/helpers/naive.py``; the public layers above check arguments,
kernels never do.
"""

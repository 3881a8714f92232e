"""Beside the joins: what phenomena are good for (`field`), and a sensor network, simulated (`network`).

Nothing of the joins, on Spark or in process, needs it.
"""

from appulse.lab import field, network

__all__ = ["field", "network"]

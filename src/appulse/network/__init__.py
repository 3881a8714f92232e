"""A sensor network, simulated: nodes in space, cluster heads that join among each other, delays, clocks, bytes.

Ali et al. 2007, sections 3, 5 and 6. Heads run the operator of the engines. Everything is settled by the seed.
"""

from appulse.network import cost
from appulse.network.assembling import Assembled, assemble, centralised
from appulse.network.filters import Bloom, Filters, KeySets, Quotient
from appulse.network.probing import Everyone, Feedback
from appulse.network.settings import Settings
from appulse.network.simulation import Outcome, simulate
from appulse.network.store import Observations
from appulse.network.timing import Timing
from appulse.network.topology import Clusters, Topology, grid_cells, heed
from appulse.network.traffic import Sizes, Traffic

__all__ = [
    "Assembled",
    "Bloom",
    "Clusters",
    "Everyone",
    "Feedback",
    "Filters",
    "KeySets",
    "Observations",
    "Outcome",
    "Quotient",
    "Settings",
    "Sizes",
    "Timing",
    "Topology",
    "Traffic",
    "assemble",
    "centralised",
    "cost",
    "grid_cells",
    "heed",
    "simulate",
]

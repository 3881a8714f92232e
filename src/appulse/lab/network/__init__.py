"""A sensor network, simulated: nodes in space, cluster heads that join among each other, delays, clocks, bytes.

Ali et al. 2007, sections 3, 5 and 6. Heads run the operator of the engines. Everything is settled by the seed.
"""

from appulse.lab.network import cost
from appulse.lab.network.assembling import Assembled, assemble, centralised
from appulse.lab.network.filters import Bloom, Filters, KeySets, Quotient
from appulse.lab.network.probing import Everyone, Feedback
from appulse.lab.network.settings import Settings
from appulse.lab.network.simulation import Outcome, simulate
from appulse.lab.network.store import Observations
from appulse.lab.network.timing import Timing
from appulse.lab.network.topology import Clusters, Topology, grid_cells, heed
from appulse.lab.network.traffic import Sizes, Traffic

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

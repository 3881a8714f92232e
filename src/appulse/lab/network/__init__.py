"""A sensor network, simulated: nodes in space, cluster heads that join among each other, delays, clocks, bytes.

Ali et al. 2007, sections 3, 5 and 6. Heads run the operator of the engines. Everything is settled by the seed.

>>> from appulse.lab import network as net
>>> places = np.array([[0.0, 0.0], [0.05, 0.0], [0.9, 0.9]])
>>> clusters = net.grid_cells(net.Topology(places, radio=2.0), side=0.5)
>>> sensor, seconds = np.array([0, 2]), 1_000_000
>>> readings = net.Observations(sensor, np.array([0, 2 * seconds]), np.array([7, 7]), np.full(2, 10 * seconds))
>>> run = net.simulate(readings, clusters)
>>> len(run.answers.time) == len(net.centralised(readings, clusters).time)
True
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

"""Which rows are in a window that counts only rows that exist: the probabilities, and the factor of a pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from appulse.kernels import bursts, poisson_binomial
from appulse.model.batch import Batch
from appulse.operators.running_presence import RunningPresence

if TYPE_CHECKING:
    from appulse.kernels.arrays import Floats, Ints
    from appulse.model.batch import Ragged
    from appulse.model.strings import Labels
    from appulse.operators.labels import LabelNumbers
    from appulse.operators.running_presence import LongWindows
    from appulse.windows.frames import Rule

_NO_PARTNER = -1
_UNKNOWN = -1


@dataclass(frozen=True)
class ExistenceTable(Batch):
    """The existence probabilities of the rows that windows held, and of those that came since.

    Window i is that of a stream of a group; its rows are numbered from ``base[i]``, and their probabilities are
    row i of ``exist``.
    """

    group: Labels | None
    stream: Ints
    base: Ints
    exist: Ragged[Floats]


@dataclass(frozen=True)
class Questions:
    """Rows of windows, each at a tick; a partner is a newer row of the same window that is known to exist, or -1.

    ``window`` is an index, the others are numbers.
    """

    window: Ints
    row: Ints
    newest: Ints
    partner: Ints


class Windows:
    """What is known of windows: each by the last `ExistenceTable` that had it."""

    def __init__(self, streams: int) -> None:
        self._streams = streams
        self._known: ExistenceTable | None = None
        self._running: LongWindows | None = None
        self._group = np.empty(0, np.int64)
        self._at = np.full((1, streams), _UNKNOWN, np.int64)

    @property
    def known(self) -> ExistenceTable | None:
        """All there is."""
        return self._known

    def learn(self, updates: ExistenceTable | RunningPresence, groups: LabelNumbers, *, forget: bool) -> None:
        """Take in what the windows are now; with ``forget``, and where they run on, that is all there is."""
        self._running = None
        if isinstance(updates, RunningPresence):
            self._known, self._running = None, updates.running
            group = groups.of(updates.group, len(updates.stream))
            self._at = np.full((len(groups), self._streams), _UNKNOWN, np.int64)
            self._at[group, updates.stream] = np.arange(len(group))
            return
        group = groups.of(updates.group, len(updates))
        if not forget and self._known is not None:
            fresh = np.zeros((len(groups), self._streams), bool)
            fresh[group, updates.stream] = True
            stays = np.flatnonzero(~fresh[self._group, self._known.stream])
            group = np.concatenate([self._group[stays], group])
            parts = [replace(part, group=None) for part in (self._known.take(stays), updates)]
            updates = replace(ExistenceTable.concat(parts), group=groups.labels(group))
        self._known, self._group = updates, group
        self._at = np.full((len(groups), self._streams), _UNKNOWN, np.int64)
        self._at[group, updates.stream] = np.arange(len(updates))

    def of(self, group: Ints, stream: Ints) -> Ints:
        """The window of a stream of a group, as an index."""
        found: Ints = self._at[group, stream]
        return found

    def inside(self, asked: Questions, rule: Rule) -> Floats:
        """The probability that each row is in its window, given that it and its partner exist (Eqs. 24 and 25)."""
        size = rule.size
        out = np.ones(len(asked.row))
        doubtful = np.flatnonzero(asked.newest - asked.row >= size)
        known, running = self._known, self._running
        if len(doubtful) == 0:
            return out
        columns = (asked.partner, asked.newest, asked.window)
        doubtful = doubtful[np.lexsort([column[doubtful] for column in columns])]
        window = asked.window[doubtful]
        if known is None:
            for i, of in enumerate(() if running is None else running.last):
                at = doubtful[window == i]
                out[at] = of.inside(asked.row[at], asked.newest[at], asked.partner[at], rule)
            return out
        base = known.base[window]
        partner = asked.partner[doubtful]
        answers = np.empty(len(doubtful))
        questions = poisson_binomial.Questions(
            window,
            asked.row[doubtful] - base,
            asked.newest[doubtful] - base,
            np.where(partner == _NO_PARTNER, _NO_PARTNER, partner - base),
        )
        first, exist = known.exist.offsets, known.exist.values
        if rule.bursts:
            bursts.membership(first, exist, np.array(rule.bursts)[known.stream], size, questions, answers)
        else:
            poisson_binomial.membership(first, exist, size, rule.method, questions, answers)
        out[doubtful] = answers
        return out


def pair_factor(
    windows: Windows,
    group: Ints,
    streams: tuple[int, int],
    numbers: tuple[Ints, Ints],
    newest: tuple[Ints, Ints],
    rule: Rule,
) -> Floats:
    """The probability that both rows of a pair are in their windows, given that they exist.

    Of two streams that is a product (Eq. 26, in both directions). In one stream the newer row is in the window
    whenever the older one is, and the newer one is among the rows that came after the older.
    """
    if streams[0] == streams[1]:
        window = windows.of(group, np.full(len(group), streams[0]))
        older, newer = np.minimum(*numbers), np.maximum(*numbers)
        return windows.inside(Questions(window, older, newest[0], newer), rule)
    factor = np.ones(len(group))
    for stream, number, last in zip(streams, numbers, newest, strict=True):
        window = windows.of(group, np.full(len(group), stream))
        alone = np.full(len(group), _NO_PARTNER)
        factor *= windows.inside(Questions(window, number, last, alone), rule)
    return factor

"""What rows of one table that share key and time come to: their order says which row each of them means.

Within a table, a row in place of another, or a withdrawal without values, means the one row of its key and time that
stands before it. The first that finds none there means a row from outside of the table, and never one that the table
adds after it. Where several rows stand at once, the ledger of rows decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    Identity = tuple[int, bytes, int]  # time, key, group


@dataclass
class Standing:
    """The rows of one key and time that stand so far; by their places in the table."""

    rows: list[int] = field(default_factory=list)
    outside: int | None = None  # what withdraws a row from outside of the table
    valued: bool = False  # a withdrawal did so by its values
    pair: tuple[int, int] | None = None  # a row and what withdrew it, the last of the table


@dataclass
class Net:
    """What is left to say of a table's withdrawals; by places of rows in the table."""

    former: dict[int, int] = field(default_factory=dict)  # rows of the table that others in it withdraw
    outside: dict[int, int | None] = field(default_factory=dict)  # what withdraws others, and its own row that stays
    likely: set[int] = field(default_factory=set)  # of the former: a row of earlier steps may be meant
    settled: set[int] = field(default_factory=set)  # withdrawals that are said by the above


def net_of(
    names: Mapping[int, Identity], updates: Container[int], removes: Container[int], values: Mapping[int, bytes]
) -> Net:
    """What rows come to, in the order of ``names``; ``values`` are digests, of rows that have values."""
    net, standing = Net(), dict[tuple[int, bytes, int], Standing]()
    for i, name in names.items():
        own = standing.setdefault(name, Standing())
        if i not in removes and i not in updates:
            own.rows.append(i)
            own.pair = None
            continue
        valued = i in removes and i in values
        if len(own.rows) == 1 and (not valued or values.get(own.rows[0]) == values[i]):
            own.pair = own.rows.pop(), i
            net.former[own.pair[0]] = i
            net.settled.add(i)
        elif not own.rows and own.outside is None and not own.valued:
            own.valued = valued
            if not valued:
                own.outside = i
                net.settled.add(i)
        elif i in removes:
            own.rows.clear()
        if i in updates:
            own.rows.append(i)
            own.pair = None
    for own in standing.values():
        if own.outside is not None:
            net.outside[own.outside] = own.rows[-1] if own.rows else None
        elif own.pair is not None and not own.valued and own.pair[1] not in values:
            net.likely.add(own.pair[0])
    return net

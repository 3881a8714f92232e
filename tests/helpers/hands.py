"""Joins by hand whose arguments tests have in one mapping: streams by name among the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import appulse as ap

if TYPE_CHECKING:
    from collections.abc import Callable


def by_hand(kind: Callable[..., Any], **arguments: Any) -> Any:
    """A join by hand of this kind; a stream without a name has that of its argument."""
    streams = {name: given for name, given in arguments.items() if isinstance(given, ap.Stream)}
    settings = {name: given for name, given in arguments.items() if name not in streams}
    named = (replace(one, frame=None, name=one.name or name) for name, one in streams.items())
    return kind(*named, **settings)


def similarity_join(**arguments: Any) -> ap.SimilarityJoin:
    """`appulse.SimilarityJoin`."""
    made: ap.SimilarityJoin = by_hand(ap.SimilarityJoin, **arguments)
    return made

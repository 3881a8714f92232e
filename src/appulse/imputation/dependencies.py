"""Differential dependencies: where some attributes differ little, another does so too."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from appulse.arguments import NAME, NOT_NEGATIVE, Kind, Name, NotNegative, Probability, Unfit, checked, mapping, number
from appulse.errors import BadArgument, nearest
from appulse.model.meaning import real, without_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from appulse.model.meaning import Meaning

_FIELDS = ("determinants", "dependent", "tolerance", "confidence", "where")


_END = number(infinite=True)


def _range(value: Any) -> tuple[float, float]:
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise Unfit
    low, high = (_END.take(end) for end in value)
    if low > high:
        raise Unfit("no number lies in there. Give a pair (low, high).")
    return low, high


_Tolerances: TypeAlias = Annotated[
    Mapping[str, float],
    mapping(
        NAME,
        NOT_NEGATIVE,
        "a mapping of at least one attribute to its tolerance, a finite number of at least 0: {'temperature': 0.5}",
        least=1,
    ),
]
_Ranges: TypeAlias = Annotated[
    Mapping[str, tuple[float, float]],
    mapping(NAME, Kind("a pair (low, high)", _range), "a mapping from attributes to a pair (low, high) each"),
]


@checked
@dataclass(frozen=True, init=False)
class DifferentialDependency:
    """Rows that differ by at most these tolerances in the determinants differ by at most ``tolerance`` in another.

    Comparisons are inclusive, with the tolerance of `within`.

    Arguments:
    * ``determinants``: a mapping from attributes to tolerances, each in its attribute's unit: ``{"temperature": 0.5,
      "light": 40}``.
    * ``dependent``: the attribute that they determine.
    * ``tolerance``: of the dependent, in its unit; at least 0.
    * ``confidence``: the rule says so of at least this share of such pairs, in (0, 1].
    * ``where``: a mapping from attributes to closed ranges ``(low, high)``, of which both rows have to lie inside: a
      conditional dependency.

    The object is one of the ``rules`` of `DependencyImputer` and `AutoImputer`.

    Raises `BadArgument` for a wrong argument, such as a dependent that is among the determinants.

    Song & Chen 2011; Ren et al. 2019, Definition 2.3.

    >>> rule = ap.DifferentialDependency({"temperature": 0.5, "light": 40}, "humidity", 2.0, confidence=0.95)
    >>> rule.dependent, rule.tolerance
    ('humidity', 2.0)
    """

    determinants: tuple[tuple[str, float], ...]
    dependent: str
    tolerance: float
    confidence: float
    where: tuple[tuple[str, tuple[float, float]], ...]

    def __init__(
        self,
        determinants: _Tolerances,
        dependent: Name,
        tolerance: NotNegative,
        confidence: Probability = 1.0,
        where: _Ranges | None = None,
    ) -> None:
        if dependent in determinants or dependent in (where or {}):
            raise BadArgument(
                f"A DifferentialDependency fills {dependent!r} from itself. Leave it out of determinants and where."
            )
        set_field = object.__setattr__
        set_field(self, "determinants", tuple(determinants.items()))
        set_field(self, "dependent", dependent)
        set_field(self, "tolerance", tolerance)
        set_field(self, "confidence", confidence)
        set_field(self, "where", tuple((where or {}).items()))

    @property
    def reads(self) -> tuple[str, ...]:
        """The attributes that have to be known to take the rule, each once."""
        return tuple(dict.fromkeys([name for name, _ in self.determinants] + [name for name, _ in self.where]))

    def meaning(self) -> Meaning:
        """The rule in plain JSON."""
        return without_defaults(
            {
                "determinants": [[name, real(of)] for name, of in self.determinants],
                "dependent": self.dependent,
                "tolerance": real(self.tolerance),
                "confidence": real(self.confidence),
                "where": [[name, real(low), real(high)] for name, (low, high) in self.where],
            },
            {"confidence": 1.0, "where": []},
        )

    def __str__(self) -> str:
        close = ", ".join(f"{name}({of:g})" for name, of in self.determinants)
        where = " and ".join(f"{name} in [{low:g}, {high:g}]" for name, (low, high) in self.where)
        return f"{close} -> {self.dependent}({self.tolerance:g})" + (f" where {where}" if where else "")


def within(tolerance: float) -> float:
    """The difference that still counts as within a tolerance: the rule of the house, as for epsilon."""
    return tolerance + 1e-9 * max(1.0, tolerance)


def from_toml(source: str | Path) -> list[DifferentialDependency]:
    """Rules from a TOML text, or from a file given as a path; the inverse of `to_toml`.

    Each is a table ``[[dependency]]`` with ``determinants``, ``dependent``, ``tolerance``, and perhaps ``confidence``
    and ``where``. Raises `BadArgument`.
    """
    try:
        text = source if isinstance(source, str) else source.read_text(encoding="utf-8")
        known = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadArgument(f"Dependencies cannot be read: {error}") from error
    for name in known:
        if name != "dependency":
            raise BadArgument(f"Dependencies have a table {name!r}.{nearest(name, ['dependency'])}")
    listed = known.get("dependency", [])
    if not isinstance(listed, list):
        raise BadArgument("Dependencies have one table [dependency]. Write [[dependency]], once for each rule.")
    return [_of_table(number, table) for number, table in enumerate(listed, 1)]


def to_toml(rules: Sequence[DifferentialDependency]) -> str:
    """Rules as TOML, a table each."""
    return "\n".join(_as_table(rule) for rule in rules)


def _of_table(number: int, table: Any) -> DifferentialDependency:
    given = dict(table)
    for name in given:
        if name not in _FIELDS:
            raise BadArgument(f"Dependency {number} has {name!r}.{nearest(name, _FIELDS)}")
    if lacking := [name for name in _FIELDS[:3] if name not in given]:
        raise BadArgument(f"Dependency {number} has no {lacking[0]!r}.")
    where = given.pop("where", None)
    if where is not None and not isinstance(where, dict):
        raise BadArgument(f"Dependency {number} has where={where!r}. Give a table such as {{light = [0, 100]}}.")
    return DifferentialDependency(**given, where=where)


def _as_table(rule: DifferentialDependency) -> str:
    determinants = ", ".join(f"{json.dumps(name)} = {of!r}" for name, of in rule.determinants)
    lines = [
        "[[dependency]]",
        f"determinants = {{{determinants}}}",
        f"dependent = {json.dumps(rule.dependent)}",
        f"tolerance = {rule.tolerance!r}",
    ]
    lines += [f"confidence = {rule.confidence!r}"] if rule.confidence < 1.0 else []
    ranges = ", ".join(f"{json.dumps(name)} = [{low!r}, {high!r}]" for name, (low, high) in rule.where)
    lines += [f"where = {{{ranges}}}"] if ranges else []
    return "\n".join([*lines, ""])

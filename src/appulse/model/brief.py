"""How models are shown at a prompt: as one would write them, without arguments that are at their default."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

__all__ = ["brief"]


def brief(value: Any) -> str:
    """The call that makes ``value``, whose attributes have the names of its arguments: ``Gaussian('x', sigma=1.0)``."""
    parts: list[str] = []
    for name, parameter in signature(type(value)).parameters.items():
        given = getattr(value, name)
        if parameter.kind is Parameter.VAR_POSITIONAL:
            parts += map(repr, given)
        elif parameter.default is Parameter.empty:
            parts.append(repr(given))
        elif given != parameter.default:
            parts.append(f"{name}={given!r}")
    return f"{type(value).__name__}({', '.join(parts)})"

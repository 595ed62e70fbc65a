"""The base of kernels, means, bases and likelihoods: named parameters, and a description to read back."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from ..errors import InducingError, ParameterError, UnknownNameError
from ..numerics.arrays import Given

T = TypeVar("T", bound="Parametrised")


@dataclass(frozen=True, eq=False)
class Parametrised:
    """A value with continuous parameters by name."""

    names: ClassVar[tuple[str, ...]] = ()  # the parameters, in the order of the fields

    @property
    def parameters(self) -> dict[str, Any]:
        """The continuous parameters by name."""
        return {name: getattr(self, name) for name in self.names}

    def with_parameters(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other parameter values, or the same object where none is another object."""
        known = self.parameters
        unknown = sorted(values.keys() - known.keys())
        if unknown:
            raise UnknownNameError(f"{type(self).__name__} has no parameter {unknown}; it has {list(known)}")
        same = all(value is known[name] for name, value in values.items())
        return self if same else self._replaced(values)

    def _replaced(self, values: Mapping[str, Any]) -> Self:
        return replace(self, **values)

    def spec(self) -> dict[str, Any]:
        """Return a description in plain data, which `from_spec` reads back."""
        values = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"name": type(self).__name__} | values


def _plain(value: Given) -> Given:
    if isinstance(value, Parametrised):
        return value.spec()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def read_spec(
    what: str, spec: Mapping[str, Any], kinds: Mapping[str, type[T]]
) -> tuple[type[T], dict[str, Any]]:
    """Return the class and field values that an untrusted spec names. Raise if either is unknown."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ParameterError(f"a {what}'s spec must be a dictionary with a name, not {spec!r}")
    kind = kinds.get(spec["name"].lower())
    if kind is None:
        raise UnknownNameError(f"there is no {what} {spec['name']!r}; known are {', '.join(kinds)}")
    values = {key: value for key, value in spec.items() if key != "name"}
    known = [field.name for field in fields(kind)]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise UnknownNameError(f"{kind.__name__} has no parameter {unknown}; it has {known}")
    return kind, values


def made(kind: type[T], values: Mapping[str, Any]) -> T:
    """Construct kind(**values). Raise a ParameterError where that raises a TypeError or ValueError."""
    try:
        return kind(**values)
    except InducingError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{kind.__name__} cannot be made from {values}: {error}") from error

"""Selectors: what labels, or a node's name, must be like.

Read once into values that compare and hash, so that Pods with the same rules share an answer. What
the API server would not let through matches nothing, as kube-scheduler has it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from cardwise.wire.fields import at, items, mapping, text

_NODE_NAME: Final = "metadata.name"
_MOST_DIGITS: Final = 19
_LARGEST: Final = 2**63 - 1


class Requirement(NamedTuple):
    """One expression about a label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels are like this."""
        have = labels.get(self.key)
        match self.operator:
            case "In":
                return have in self.values
            case "NotIn":
                return have not in self.values
            case "Exists":
                return have is not None
            case "DoesNotExist":
                return have is None
            case _:
                (bound,) = self.values
                return compares(self.operator, bound, have)


Requirements = tuple[Requirement, ...]


class Term(NamedTuple):
    """One alternative of a node selector: everything in it must hold."""

    labels: Requirements = ()
    names: tuple[tuple[bool, str], ...] = ()
    """Whether the node must have this name, or must not."""

    def matches(self, labels: Mapping[str, str], name: str | None) -> bool:
        """Whether a node is meant; no ``name`` leaves out what is said of names."""
        named = name is None or all((name == wanted) is same for same, wanted in self.names)
        return named and all(each.holds(labels) for each in self.labels)


Terms = tuple[Term, ...]


def terms_of(selector: object) -> Terms:
    """The alternatives of a node selector that can match a node; none matches no node at all."""
    terms = (_term(mapping(each)) for each in items(at(selector, "nodeSelectorTerms")))
    return tuple(term for term in terms if term is not None)


def label_selector(selector: object) -> Requirements | None:
    """Read a label selector: an empty one matches everything, None (or a bad one) nothing."""
    if not isinstance(selector, dict):
        return None
    expressions = _requirements(selector.get("matchExpressions"), ("Gt", "Lt"))
    return None if expressions is None else (*equal_to(selector.get("matchLabels")), *expressions)


def equal_to(labels: object) -> Requirements:
    """Every one of these labels, with its value."""
    return tuple(
        Requirement(key, "In", frozenset((value,))) for key, value in sorted(pairs(labels))
    )


def pairs(labels: object) -> Iterator[tuple[str, str]]:
    """The labels of an object that are text."""
    for key, value in mapping(labels).items():
        if isinstance(value, str):
            yield key, value


def compares(operator: object, bound: object, value: object) -> bool:
    """``value > bound`` for Gt, ``value < bound`` for Lt; both must be whole numbers of 64 bits."""
    limit, have = _integer(bound), _integer(value)
    if limit is None or have is None:
        return False
    return have > limit if operator == "Gt" else have < limit


def _term(term: Mapping[str, Any]) -> Term | None:
    """One alternative; None for an empty one, or a bad one, which matches nothing."""
    labels = _requirements(term.get("matchExpressions"))
    names = _names(term.get("matchFields"))
    if labels is None or names is None or not (labels or names):
        return None
    return Term(labels, names)


def _requirements(expressions: object, refused: tuple[str, ...] = ()) -> Requirements | None:
    """The expressions; None where one of them is bad."""
    read = tuple(_requirement(mapping(each)) for each in items(expressions))
    good = tuple(each for each in read if each is not None and each.operator not in refused)
    return good if len(good) == len(read) else None


def _requirement(expression: Mapping[str, Any]) -> Requirement | None:
    key, operator = text(expression.get("key")), expression.get("operator")
    values = frozenset(each for each in items(expression.get("values")) if isinstance(each, str))
    match operator:
        case "In" | "NotIn" if values:
            return Requirement(key, operator, values)
        case "Exists" | "DoesNotExist" if not values:
            return Requirement(key, operator)
        case "Gt" | "Lt" if len(values) == 1 and _integer(next(iter(values))) is not None:
            return Requirement(key, operator, values)
    return None


def _names(expressions: object) -> tuple[tuple[bool, str], ...] | None:
    names = []
    for each in items(expressions):
        values = items(at(each, "values"))
        operator = at(each, "operator")
        if at(each, "key") != _NODE_NAME or operator not in ("In", "NotIn") or len(values) != 1:
            return None
        names.append((operator == "In", text(values[0])))
    return tuple(names)


def _integer(value: object) -> int | None:
    if not isinstance(value, str):
        return None
    digits = value[1:] if value[:1] in ("-", "+") else value
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        return None
    number = int(value)
    return number if abs(number) <= _LARGEST else None

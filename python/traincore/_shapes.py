"""The shape language of the schema (traincore/core/shape.h): binding extents, and shapes from bound extents.

A shape is alternatives "a | b"; an alternative is terms "rows... 2*ff n+1 3", perhaps behind "when(field=value)".
"""

import functools
import re
import typing

_TERM = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(\.\.\.)?(?:\+(\d+))?")
_CONDITION = re.compile(r"when\((\w+)=(\d+)\)")

Dims = dict[str, int | tuple[int, ...]]
"""What the names took: an extent, or of a variadic name the leading extents."""


class Term(typing.NamedTuple):
    name: str  # "" for a number, which `add` holds
    multiply: int
    variadic: bool
    add: int


class Alternative(typing.NamedTuple):
    terms: tuple[Term, ...]
    when: tuple[str, int] | None

    @property
    def variadic(self) -> bool:
        return bool(self.terms) and self.terms[0].variadic

    def applies(self, scalars: dict[str, int]) -> bool:
        return self.when is None or scalars[self.when[0]] == self.when[1]

    def fits(self, rank: int) -> bool:
        return rank >= len(self.terms) - 1 if self.variadic else rank == len(self.terms)

    def known(self, dims: Dims) -> bool:
        return all(not term.name or term.name in dims for term in self.terms)


def _term(word: str) -> Term:
    if word.isdigit():
        return Term("", 1, False, int(word))
    multiply, name, dots, add = _TERM.fullmatch(word).groups()
    return Term(name, int(multiply or 1), bool(dots), int(add or 0))


def _alternative(text: str) -> Alternative:
    words = [word for word in text.split() if word != "scalar"]
    when = None
    if words and (condition := _CONDITION.fullmatch(words[0])):
        when = condition[1], int(condition[2])
        words = words[1:]
    return Alternative(tuple(_term(word) for word in words), when)


@functools.cache
def parse(text: str) -> tuple[Alternative, ...]:
    return tuple(_alternative(part) for part in text.split("|"))


def bind(text: str, shape: tuple[int, ...], scalars: dict[str, int], dims: Dims) -> None:
    """Lets the names of a shape take the extents of a tensor. What does not agree is left for the call to refuse."""
    for alternative in parse(text):
        if not (alternative.applies(scalars) and alternative.fits(len(shape))):
            continue
        leading = len(shape) - len(alternative.terms) + 1 if alternative.variadic else 0
        if alternative.variadic:
            dims.setdefault(alternative.terms[0].name, tuple(shape[:leading]))
        fixed = alternative.terms[1:] if alternative.variadic else alternative.terms
        for term, extent in zip(fixed, shape[leading:]):
            if term.name:
                dims.setdefault(term.name, (extent - term.add) // term.multiply)
        return


def make(text: str, scalars: dict[str, int], dims: Dims) -> tuple[int, ...] | None:
    """The shape that bound names give: the first alternative all of whose names are known; None if there is none."""
    for alternative in parse(text):
        if not (alternative.applies(scalars) and alternative.known(dims)):
            continue
        shape: list[int] = []
        for term in alternative.terms:
            if term.variadic:
                shape.extend(dims[term.name])
            else:
                shape.append(term.multiply * dims[term.name] + term.add if term.name else term.add)
        return tuple(shape)
    return None

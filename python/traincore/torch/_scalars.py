"""Scalar arguments of a wrong type, refused by name. A call that succeeds pays for a `try` and no more."""

import functools
import inspect
import numbers
import typing

import torch

# What torch.library takes for each annotation: numbers of Python and numpy, symbols of torch.compile, 0-d tensors.
_ACCEPTED = {
    float: (numbers.Real, torch.SymFloat, torch.SymInt, torch.Tensor),
    int: (numbers.Integral, torch.SymInt, torch.Tensor),
    bool: (numbers.Integral, torch.SymBool, torch.Tensor),
    str: (str,),
}


def _scalars_of(signature: inspect.Signature) -> dict[str, tuple[type, ...]]:
    """The scalar parameters, and of which types each may be."""
    found = {}
    for name, parameter in signature.parameters.items():
        kinds = typing.get_args(parameter.annotation) or (parameter.annotation,)
        for kind in _ACCEPTED.keys() & set(kinds):
            found[name] = _ACCEPTED[kind] + ((type(None),) if type(None) in kinds else ())
    return found


def _refusal(function, signature, scalars, args, keywords) -> TypeError | None:
    try:
        given = signature.bind(*args, **keywords).arguments
    except TypeError:  # no call of this function at all, as Python has said
        return None
    for name, accepted in scalars.items():
        if name in given and not isinstance(given[name], accepted):
            annotation = signature.parameters[name].annotation
            expected = getattr(annotation, "__name__", annotation)
            kind = type(given[name])
            found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
            return TypeError(f"{function.__name__}: {name} is a {found}, expected {expected}")
    return None


def names_scalars(function):
    """The function, whose failure is a TypeError that names it and the scalar if one is not of its annotated type."""
    signature = inspect.signature(function)
    scalars = _scalars_of(signature)

    @functools.wraps(function)
    def named(*args, **keywords):
        try:
            return function(*args, **keywords)
        except Exception:
            refusal = _refusal(function, signature, scalars, args, keywords)
            if refusal is None:
                raise
            raise refusal from None

    # torch.compile counts recompilations by code object, of which all functions would otherwise share one.
    named.__code__ = named.__code__.replace(co_name=function.__name__)
    return named

"""A matrix product with an optional activation, as an explicit pair.

    output, saved = matmul_forward(left, right, activation="silu")
    dleft, dright = matmul_backward(saved, gradient)

left is [..., m, k] and right [k, n], or [..., k, n] with the same leading shape. Operands are f32, f16 or bf16 and are
widened to true f32; output and gradients are f32.
"""

import dataclasses

from . import _dtypes, _pairs, ops
from .buffer import Buffer
from .pointwise import KINDS

_STRICT = {"precision": "strict"}


@dataclasses.dataclass(frozen=True)
class MatmulSaved:
    """What the backward of a matrix product reads."""

    left: object
    right: object
    preactivation: Buffer | None
    activation: str
    max_workspace_bytes: int | None
    shape: tuple[int, ...]


def _shapes(left: _pairs.Operand, right: _pairs.Operand) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes in which the product is computed: rows in front of one matrix are one long dimension."""
    if left.rank < 2:
        raise ValueError(f"left has shape {left.shape}, expected [..., m, k]")
    if right.rank < 2 or right.shape[-2] != left.shape[-1]:
        raise ValueError(
            f"right has shape {right.shape}, expected [..., {left.shape[-1]}, n]: its rows are left's columns"
        )
    if right.rank == 2:
        return (_pairs.product(left.shape[:-1]), left.shape[-1]), right.shape
    if right.shape[:-2] != left.shape[:-2]:
        raise ValueError(f"right has leading shape {right.shape[:-2]}, expected {left.shape[:-2]} as left, or none")
    return left.shape, right.shape


def _require_budget(name: str, budget: int | None, held: int, **call) -> None:
    """Refuses a call that takes more scratch than the caller allows; copies in f32 count."""
    if budget is None:
        return
    needed = held + _pairs.workspace_bytes(name, **call)
    if needed > budget:
        raise ValueError(f"max_workspace_bytes is {budget}, but this call needs {needed}: over budget")


def _copied_bytes(*arguments: _pairs.Operand) -> int:
    return sum(4 * _pairs.product(a.shape) for a in arguments if a.dtype != _dtypes.F32)


def matmul_forward(left, right, *, activation=None, max_workspace_bytes=None) -> tuple[Buffer, MatmulSaved]:
    """activation(left right) in f32. Returns (output, saved).

    max_workspace_bytes bounds scratch and widened copies of this call and of its backward; beyond it: ValueError."""
    kind = "none" if activation is None else _pairs.chosen("activation", activation, KINDS)
    budget = None if max_workspace_bytes is None else _pairs.integer("max_workspace_bytes", max_workspace_bytes, low=0)
    left, right = _pairs.operand("left", left), _pairs.operand("right", right)
    flat_left, flat_right = _shapes(left, right)
    _pairs.require_one_device(left, right)
    copied = _copied_bytes(left, right)
    if budget is not None and copied > budget:
        raise ValueError(f"max_workspace_bytes is {budget}, but this call needs {copied}: over budget")
    a, b = _pairs.place(left), _pairs.place(right)
    call = {
        "a": _pairs.reshape(_pairs.widen(a), flat_left), "b": _pairs.reshape(_pairs.widen(b), flat_right),
        "activation": kind, "preactivation": kind != "none",
    }  # fmt: skip
    _require_budget("gemm_forward", budget, copied, **call)
    found = ops.gemm_forward(**call, **_STRICT)
    shape = (*left.shape[:-1], right.shape[-1])
    preactivation = None if found.preactivation is None else _pairs.buffer(found.preactivation)
    return _pairs.buffer(found.c, shape), MatmulSaved(a, b, preactivation, kind, budget, shape)


def matmul_backward(saved, gradient) -> tuple[Buffer, Buffer]:
    """(dleft, dright)."""
    _pairs.context("saved", saved, MatmulSaved)
    gradient = _pairs.operand("gradient", gradient)
    _pairs.require_shape(gradient, saved.shape, "the shape of the output")
    left, right = _pairs.operand("left", saved.left), _pairs.operand("right", saved.right)
    _pairs.require_one_device(left, gradient)
    flat_left, flat_right = _shapes(left, right)
    call = {
        "dc": _pairs.reshape(_pairs.place(gradient, _dtypes.F32), (*flat_left[:-1], flat_right[-1])),
        "a": _pairs.reshape(_pairs.widen(saved.left), flat_left),
        "b": _pairs.reshape(_pairs.widen(saved.right), flat_right),
        "preactivation": saved.preactivation, "activation": saved.activation, "da": True, "db": "f32",
    }  # fmt: skip
    _require_budget("gemm_backward", saved.max_workspace_bytes, _copied_bytes(left, right, gradient), **call)
    found = ops.gemm_backward(**call, **_STRICT)
    return _pairs.buffer(found.da, left.shape), _pairs.buffer(found.db, right.shape)

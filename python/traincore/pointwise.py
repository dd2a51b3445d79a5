"""Activations and rotary embedding as explicit pairs.

    output, saved = activation_forward(gate, kind="silu", up=up)      # SwiGLU
    dgate, dup = activation_backward(saved, gradient)

Arrays are f32, f16 or bf16; outputs have the dtype of `values` (gated: promoted with `up`); gradients are f32.
"""

import dataclasses

from . import _dtypes, _pairs, ops
from .buffer import Buffer

KINDS = ("silu", "sigmoid", "gelu_tanh", "gelu_erf", "quick_gelu", "relu", "relu2", "tanh")
_STRICT = {"precision": "strict"}


@dataclasses.dataclass(frozen=True)
class ActivationSaved:
    """What an activation's backward reads."""

    kind: str
    values: object
    up: object | None
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class RopeSaved:
    """What the backward of the rotary embedding reads."""

    values: object
    cosine: object
    sine: object
    interleaved: bool


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape or (1,)


def activation_forward(values, *, kind="silu", up=None) -> tuple[Buffer, ActivationSaved]:
    """act(values), or gated act(values) up, element by element. Returns (output, saved)."""
    if kind == "gelu":
        raise ValueError("kind is 'gelu', which is ambiguous: choose 'gelu_tanh' or 'gelu_erf'")
    kind = _pairs.chosen("kind", kind, KINDS)
    values, up = _pairs.operand("values", values), None if up is None else _pairs.operand("up", up)
    if up is not None:
        _pairs.require_shape(up, values.shape, "the shape of values")
    _pairs.require_one_device(values, up)
    dtype = values.dtype if up is None else _dtypes.promoted(values.dtype, up.dtype)
    saved = ActivationSaved(kind, _pairs.place(values, dtype), _pairs.place(up, dtype), values.shape)
    if _pairs.product(values.shape) == 0:
        return _pairs.buffer(_pairs.empty_like(saved.values, values.shape, dtype)), saved
    shape = _rows(values.shape)
    found = ops.activation_forward(
        kind=kind, gate=_pairs.reshape(saved.values, shape),
        up=None if up is None else _pairs.reshape(saved.up, shape), **_STRICT,
    )  # fmt: skip
    return _pairs.buffer(found.y, values.shape), saved


def activation_backward(saved, gradient) -> Buffer | tuple[Buffer, Buffer]:
    """dvalues, or (dvalues, dup) when gated."""
    _pairs.context("saved", saved, ActivationSaved)
    gradient = _pairs.operand("gradient", gradient)
    _pairs.require_shape(gradient, saved.shape, "the shape of the output")
    _pairs.require_one_device(_pairs.operand("values", saved.values), gradient)
    gated = saved.up is not None
    if _pairs.product(saved.shape) == 0:
        made = [_pairs.buffer(_pairs.empty_like(saved.values, saved.shape, _dtypes.F32)) for _ in range(1 + gated)]
        return tuple(made) if gated else made[0]
    shape = _rows(saved.shape)
    found = ops.activation_backward(
        kind=saved.kind, dy=_pairs.reshape(_pairs.place(gradient, _dtypes.F32), shape),
        gate=_pairs.reshape(_pairs.widen(saved.values), shape),
        up=_pairs.reshape(_pairs.widen(saved.up), shape) if gated else None, dgate=True, dup=gated, **_STRICT,
    )  # fmt: skip
    dvalues = _pairs.buffer(found.dgate, saved.shape)
    return (dvalues, _pairs.buffer(found.dup, saved.shape)) if gated else dvalues


def rope_forward(values, cosine, sine, *, rotary_dim=None, interleaved=False) -> tuple[Buffer, RopeSaved]:
    """Turns the first rotary_dim of each row's elements, in pairs (i, i + rotary_dim/2), or (2i, 2i + 1) if interleaved.

    values [rows, dim]; cosine, sine [rows, rotary_dim/2]. The rest of a row is copied. Returns (output, saved)."""
    values, cosine = _pairs.operand("values", values), _pairs.operand("cosine", cosine)
    sine, interleaved = _pairs.operand("sine", sine), _pairs.boolean("interleaved", interleaved)
    if values.rank != 2:
        raise ValueError(f"values has shape {values.shape}, expected [rows, dim]")
    if cosine.rank != 2 or cosine.shape[0] != values.shape[0]:
        raise ValueError(f"cosine has shape {cosine.shape}, expected [{values.shape[0]}, rotary_dim/2], a row per row")
    _pairs.require_shape(sine, cosine.shape, "the shape of cosine")
    turned = 2 * cosine.shape[1]
    if rotary_dim is not None and _pairs.integer("rotary_dim", rotary_dim, low=0) != turned:
        raise ValueError(f"rotary_dim is {rotary_dim}, but cosine has {cosine.shape[1]} columns, which turn {turned}")
    if turned > values.shape[1]:
        raise ValueError(f"cosine has {cosine.shape[1]} columns, which turn {turned} of {values.shape[1]} elements")
    _pairs.require_one_device(values, cosine, sine)
    saved = RopeSaved(_pairs.place(values), _pairs.place(cosine), _pairs.place(sine), interleaved)
    found = ops.rope_forward(q=saved.values, cos=saved.cosine, sin=saved.sine, pairing=_pairing(saved), **_STRICT)
    return _pairs.buffer(found.q_out), saved


def _pairing(saved: RopeSaved) -> str:
    return "interleaved" if saved.interleaved else "half"


def rope_backward(saved, gradient) -> tuple[Buffer, Buffer, Buffer]:
    """(dvalues, dcosine, dsine)."""
    _pairs.context("saved", saved, RopeSaved)
    gradient = _pairs.operand("gradient", gradient)
    _pairs.require_shape(gradient, tuple(saved.values.shape), "the shape of the output")
    _pairs.require_one_device(_pairs.operand("values", saved.values), gradient)
    found = ops.rope_backward(
        dq_out=_pairs.place(gradient, _dtypes.F32), q=_pairs.widen(saved.values), cos=saved.cosine, sin=saved.sine,
        pairing=_pairing(saved), dq=True, dcos="f32", dsin="f32", **_STRICT,
    )  # fmt: skip
    return _pairs.buffer(found.dq), _pairs.buffer(found.dcos), _pairs.buffer(found.dsin)

"""Norms as explicit pairs: RMSNorm, LayerNorm, and RMSNorm of a sum.

    output, saved = rms_norm_forward(source, weight, epsilon=1e-6)
    gradients = norm_backward(saved, output_gradient)      # .source .weight

The normalised shape is the weight's shape, the trailing dimensions of the source. Arrays are f32, f16 or bf16, each in
its own; the output has the source's dtype (of a sum: the promoted one), rounded once; gradients are f32.
"""

import dataclasses
import math

import numpy as np

from . import _dtypes, _pairs, ops
from .buffer import Buffer

_STRICT = {"precision": "strict"}


@dataclasses.dataclass(frozen=True)
class RmsNormSaved:
    """What RMSNorm's backward reads."""

    source: object
    weight: object
    rstd: Buffer
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class LayerNormSaved:
    """What LayerNorm's backward reads."""

    source: object
    weight: object
    mean: Buffer
    rstd: Buffer
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class AddRmsNormSaved:
    """What the backward of RMSNorm of a sum reads."""

    source: object
    residual: object
    weight: object
    rstd: Buffer
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class NormGradients:
    """f32 gradients; bias is None but for layer norm, residual None but for the sum."""

    source: Buffer
    weight: Buffer
    bias: Buffer | None = None
    residual: Buffer | None = None


def _epsilon(value) -> float:
    epsilon = _pairs.real("epsilon", value, above=0)
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(epsilon))
    if not 0 < rounded < math.inf:
        raise ValueError(f"epsilon is {value!r}, but must be finite and > 0 as an f32")
    return epsilon


def _normalised(source: _pairs.Operand, weight: _pairs.Operand) -> tuple[int, int]:
    """Rows and columns: the weight's shape is the source's trailing dimensions."""
    if weight.rank == 0 or source.shape[source.rank - weight.rank :] != weight.shape or weight.rank > source.rank:
        raise ValueError(
            f"weight has shape {weight.shape}, expected the trailing dimensions of source, which has shape {source.shape}"
        )
    cols = _pairs.product(weight.shape)
    if cols == 0:
        raise ValueError(f"weight has shape {weight.shape}, but a row needs at least one element")
    return _pairs.product(source.shape[: source.rank - weight.rank]), cols


def rms_norm_forward(source, weight, *, epsilon=1e-5) -> tuple[Buffer, RmsNormSaved]:
    """y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + epsilon). Returns (output, saved)."""
    source, weight, epsilon = _pairs.operand("source", source), _pairs.operand("weight", weight), _epsilon(epsilon)
    rows, cols = _normalised(source, weight)
    _pairs.require_one_device(source, weight)
    x, w = _pairs.place(source), _pairs.place(weight)
    found = ops.rmsnorm_forward(
        x=_pairs.reshape(x, (rows, cols)), weight=_pairs.reshape(w, (cols,)), eps=epsilon, **_STRICT
    )
    saved = RmsNormSaved(x, w, _pairs.buffer(found.rstd), source.shape)
    return _pairs.buffer(found.y, source.shape), saved


def add_rms_norm_forward(source, residual, weight, *, epsilon=1e-5) -> tuple[Buffer, Buffer, AddRmsNormSaved]:
    """RMSNorm of v = source + residual, summed in f32. Returns (output, residual_sum, saved); residual_sum is v rounded."""
    source, residual = _pairs.operand("source", source), _pairs.operand("residual", residual)
    weight, epsilon = _pairs.operand("weight", weight), _epsilon(epsilon)
    _pairs.require_shape(residual, source.shape, "the shape of source")
    rows, cols = _normalised(source, weight)
    _pairs.require_one_device(source, residual, weight)
    dtype = _dtypes.promoted(source.dtype, residual.dtype)
    x, r, w = _pairs.place(source, dtype), _pairs.place(residual, dtype), _pairs.place(weight)
    found = ops.rmsnorm_forward(
        x=_pairs.reshape(x, (rows, cols)), residual=_pairs.reshape(r, (rows, cols)),
        weight=_pairs.reshape(w, (cols,)), eps=epsilon, residual_out=True, **_STRICT,
    )  # fmt: skip
    saved = AddRmsNormSaved(x, r, w, _pairs.buffer(found.rstd), source.shape)
    return _pairs.buffer(found.y, source.shape), _pairs.buffer(found.residual_out, source.shape), saved


def layer_norm_forward(source, weight, bias, *, epsilon=1e-5) -> tuple[Buffer, LayerNormSaved]:
    """y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(variance + epsilon). Returns (output, saved)."""
    source, weight, bias = (
        _pairs.operand("source", source), _pairs.operand("weight", weight), _pairs.operand("bias", bias),
    )  # fmt: skip
    epsilon = _epsilon(epsilon)
    rows, cols = _normalised(source, weight)
    _pairs.require_shape(bias, weight.shape, "the shape of weight")
    _pairs.require_one_device(source, weight, bias)
    x, w, b = _pairs.place(source), _pairs.place(weight), _pairs.place(bias)
    found = ops.layernorm_forward(
        x=_pairs.reshape(x, (rows, cols)), weight=_pairs.reshape(w, (cols,)), bias=_pairs.reshape(b, (cols,)),
        eps=epsilon, **_STRICT,
    )  # fmt: skip
    saved = LayerNormSaved(x, w, _pairs.buffer(found.mean), _pairs.buffer(found.rstd), source.shape)
    return _pairs.buffer(found.y, source.shape), saved


def norm_backward(saved, output_gradient, *, residual_output_gradient=None) -> NormGradients:
    """The gradients of any of the three. residual_output_gradient is what arrives at residual_sum, for the sum alone."""
    _pairs.context("saved", saved, RmsNormSaved, LayerNormSaved, AddRmsNormSaved)
    gradient = _pairs.operand("output_gradient", output_gradient)
    _pairs.require_shape(gradient, saved.shape, "the shape of the output")
    arriving = None
    if residual_output_gradient is not None:
        if not isinstance(saved, AddRmsNormSaved):
            raise ValueError("residual_output_gradient is given, but this forward had no residual")
        arriving = _pairs.operand("residual_output_gradient", residual_output_gradient)
        _pairs.require_shape(arriving, saved.shape, "the shape of residual_sum")
    _pairs.require_one_device(_pairs.operand("source", saved.source), gradient, arriving)
    return _backward(saved, _pairs.place(gradient, _dtypes.F32), _pairs.place(arriving, _dtypes.F32))


def _backward(saved, dy, arriving) -> NormGradients:
    weight_shape = tuple(saved.weight.shape)
    cols = _pairs.product(weight_shape)
    flat = (_pairs.product(saved.shape) // cols, cols)
    arrays = {
        "dy": _pairs.reshape(dy, flat),
        "x": _pairs.reshape(_pairs.widen(saved.source), flat),
        "weight": _pairs.reshape(saved.weight, (cols,)),
        "rstd": saved.rstd,
    }
    if isinstance(saved, LayerNormSaved):
        found = ops.layernorm_backward(**arrays, mean=saved.mean, dx=True, dweight=True, dbias=True, **_STRICT)
        bias = _pairs.buffer(found.dbias, weight_shape)
        return NormGradients(_pairs.buffer(found.dx, saved.shape), _pairs.buffer(found.dweight, weight_shape), bias)
    if isinstance(saved, AddRmsNormSaved):
        arrays["residual"] = _pairs.reshape(_pairs.widen(saved.residual), flat)
        arrays["dresidual_out"] = None if arriving is None else _pairs.reshape(arriving, flat)
    found = ops.rmsnorm_backward(**arrays, dx=True, dweight=True, **_STRICT)
    source, weight = _pairs.buffer(found.dx, saved.shape), _pairs.buffer(found.dweight, weight_shape)
    if not isinstance(saved, AddRmsNormSaved):
        return NormGradients(source, weight)
    residual = _pairs.buffer(_pairs.cast(source, _dtypes.F32))  # the same values, in memory of its own
    return NormGradients(source, weight, residual=residual)

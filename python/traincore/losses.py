"""Softmax, log-softmax and cross entropy as explicit pairs, and their float64 definitions.

    loss, saved = cross_entropy_forward(logits, target, label_smoothing=0.1)
    dlogits = cross_entropy_backward(saved)

Arrays are f32, f16 or bf16. Softmaxes return the source's dtype and need no context: backward reads the output. The loss
and all gradients are f32.
"""

import dataclasses

import numpy as np

from . import _dtypes, _pairs, ops, reference
from .buffer import Buffer

_STRICT = {"precision": "strict"}
REDUCTIONS = ("none", "sum", "mean")


@dataclasses.dataclass(frozen=True)
class CrossEntropySaved:
    """What the backward of cross entropy reads: the row maximum and the logarithm of the row's sum, kept apart."""

    source: object
    target: object
    row_maximum: Buffer
    row_log_sum: Buffer
    loss_shape: tuple[int, ...]
    reduction: str
    ignore_index: int
    label_smoothing: float
    z_loss: float


def _rows(argument: _pairs.Operand, what: str) -> None:
    if argument.rank == 0 or argument.shape[-1] == 0:
        raise ValueError(f"{argument.name} has shape {argument.shape}, expected [..., {what}] with {what} > 0")


def _softmax_forward(op, source) -> Buffer:
    source = _pairs.operand("source", source)
    _rows(source, "columns")
    return _pairs.buffer(op(x=_pairs.place(source), **_STRICT).y)


def _softmax_backward(op, output, output_gradient) -> Buffer:
    output, gradient = _pairs.operand("output", output), _pairs.operand("output_gradient", output_gradient)
    _rows(output, "columns")
    _pairs.require_shape(gradient, output.shape, "the shape of output")
    _pairs.require_one_device(output, gradient)
    return _pairs.buffer(op(y=_pairs.place(output, _dtypes.F32), dy=_pairs.place(gradient, _dtypes.F32), **_STRICT).dx)


def softmax_forward(source) -> Buffer:
    """exp(x - max) / sum exp(x - max) over the last axis."""
    return _softmax_forward(ops.softmax_forward, source)


def softmax_backward(output, output_gradient) -> Buffer:
    """y (g - sum(y g))."""
    return _softmax_backward(ops.softmax_backward, output, output_gradient)


def log_softmax_forward(source) -> Buffer:
    """(x - max) - log sum exp(x - max) over the last axis."""
    return _softmax_forward(ops.log_softmax_forward, source)


def log_softmax_backward(output, output_gradient) -> Buffer:
    """g - exp(y) sum(g)."""
    return _softmax_backward(ops.log_softmax_backward, output, output_gradient)


def _options(reduction, ignore_index, label_smoothing, z_loss) -> dict:
    return {
        "reduction": _pairs.chosen("reduction", reduction, REDUCTIONS),
        "ignore_index": _pairs.integer("ignore_index", ignore_index, low=-(2**31), high=2**31 - 1),
        "label_smoothing": _pairs.real("label_smoothing", label_smoothing, low=0, high=1),
        "z_loss": _pairs.real("z_loss", z_loss, low=0),
    }


def _require_classes(target: _pairs.Operand, classes: int, ignore_index: int) -> None:
    values = _pairs.host(target)
    wrong = (values != ignore_index) & ((values < 0) | (values >= classes))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"target{list(at) if at else ''} is {values[at]}, expected a class in [0, {classes}) or ignore_index ({ignore_index})"
        )


def cross_entropy_forward(
    source, target, *, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0
) -> tuple[Buffer, CrossEntropySaved]:
    """(1 - s) (lse - x_t) + s (lse - mean(x)) + z lse^2 per row, s = label_smoothing, z = z_loss.

    Rows whose target is ignore_index count for nothing; mean divides by the number of the others and is 0 if there are
    none. The loss has shape () for sum and mean, the leading shape of source for none. Returns (loss, saved)."""
    options = _options(reduction, ignore_index, label_smoothing, z_loss)
    source, target = _pairs.operand("source", source), _pairs.operand("target", target, _pairs.INDICES)
    _rows(source, "classes")
    _pairs.require_shape(target, source.shape[:-1], "the leading shape of source")
    _pairs.require_one_device(source, target)
    _require_classes(target, source.shape[-1], options["ignore_index"])
    x, t = _pairs.place(source), _pairs.place(target)
    found = ops.cross_entropy_forward(logits=x, target=t, **options, **_STRICT)
    loss_shape = source.shape[:-1] if reduction == "none" else ()
    kept = _pairs.buffer(found.row_max), _pairs.buffer(found.row_log_sum)
    return _pairs.buffer(found.loss), CrossEntropySaved(x, t, *kept, loss_shape, **options)


def cross_entropy_backward(saved, cotangent=None) -> Buffer:
    """dsource, for a cotangent of the loss's shape; None stands for ones."""
    _pairs.context("saved", saved, CrossEntropySaved)
    if cotangent is None:
        cotangent = ops.fill(y=_pairs.empty_like(saved.source, saved.loss_shape, _dtypes.F32), value=1.0).y
    seed = _pairs.operand("cotangent", cotangent)
    _pairs.require_shape(seed, saved.loss_shape, "the shape of the loss")
    _pairs.require_one_device(_pairs.operand("source", saved.source), seed)
    found = ops.cross_entropy_backward(
        logits=_pairs.widen(saved.source), target=saved.target, row_max=saved.row_maximum, row_log_sum=saved.row_log_sum,
        dloss=_pairs.place(seed, _dtypes.F32), reduction=saved.reduction, ignore_index=saved.ignore_index,
        label_smoothing=saved.label_smoothing, z_loss=saved.z_loss, **_STRICT,
    )  # fmt: skip
    return _pairs.buffer(found.dlogits)


def softmax_reference(source, output_gradient=None):
    """Softmax in float64: the output, or with a gradient (output, dsource)."""
    y = reference.softmax_forward(x=source).y
    return y if output_gradient is None else (y, reference.softmax_backward(y=y, dy=output_gradient).dx)


def log_softmax_reference(source, output_gradient=None):
    """Log-softmax in float64: the output, or with a gradient (output, dsource)."""
    y = reference.log_softmax_forward(x=source).y
    return y if output_gradient is None else (y, reference.log_softmax_backward(y=y, dy=output_gradient).dx)


def cross_entropy_reference(
    source, target, *, reduction="mean", ignore_index=-100, label_smoothing=0.0, z_loss=0.0, cotangent=None
):
    """Cross entropy in float64: (loss, dsource)."""
    options = _options(reduction, ignore_index, label_smoothing, z_loss)
    found = reference.cross_entropy_forward(logits=source, target=target, **options)
    seed = np.ones_like(found.loss) if cotangent is None else cotangent
    gradient = reference.cross_entropy_backward(
        logits=source, target=target, row_max=found.row_max, row_log_sum=found.row_log_sum, dloss=seed, **options
    )
    return found.loss, gradient.dlogits

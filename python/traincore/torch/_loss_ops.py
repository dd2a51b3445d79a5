"""Softmax, log-softmax and cross entropy as custom ops."""

from torch import Tensor

from ._define import backward_op, forward_op, kernel, rows, statistic_dtype


def _softmax_fake(x, logarithm):
    return x.new_empty(x.shape)


def _name(logarithm: bool, direction: str) -> str:
    return f"{'log_' if logarithm else ''}softmax_{direction}"


@forward_op("softmax_forward", _softmax_fake)
def softmax_forward(x: Tensor, logarithm: bool) -> Tensor:
    return kernel(_name(logarithm, "forward"), x)(x=rows(x)).y


def _softmax_backward_fake(dy, y, logarithm):
    return y.new_empty(y.shape)


@backward_op("softmax_backward", _softmax_backward_fake)
def softmax_backward(dy: Tensor, y: Tensor, logarithm: bool) -> Tensor:
    return kernel(_name(logarithm, "backward"), y)(y=y, dy=rows(dy)).dx


def _softmax_setup(ctx, inputs, output):
    ctx.logarithm = inputs[1]
    ctx.save_for_backward(output)


def _softmax_gradient(ctx, dy):
    return softmax_backward(dy, ctx.saved_tensors[0], ctx.logarithm), None


softmax_forward.differentiate(_softmax_gradient, _softmax_setup)


# Cross entropy ------------------------------------------------------------------------------------------------------


def _cross_entropy_fake(
    logits, target, weight, normalizer, reduction, ignore_index, label_smoothing, z_loss, scale, softcap
):
    dtype, per_row = statistic_dtype(logits), logits.shape[:-1]
    loss = logits.new_empty(per_row if reduction == "none" else (), dtype=dtype)
    return loss, logits.new_empty(per_row, dtype=dtype), logits.new_empty(per_row, dtype=dtype)


def _options(reduction, ignore_index, label_smoothing, z_loss, scale, softcap) -> dict:
    return {
        "reduction": reduction, "ignore_index": ignore_index, "label_smoothing": label_smoothing, "z_loss": z_loss,
        "logit_scale": scale, "softcap": softcap,
    }  # fmt: skip


@forward_op("cross_entropy_forward", _cross_entropy_fake)
def cross_entropy_forward(
    logits: Tensor, target: Tensor, weight: Tensor | None, normalizer: Tensor | None, reduction: str,
    ignore_index: int, label_smoothing: float, z_loss: float, scale: float, softcap: float, *, save: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    found = kernel("cross_entropy_forward", logits)(
        logits=rows(logits), target=target, class_weight=rows(weight),
        normalizer=normalizer, row_max=save, row_log_sum=save,
        **_options(reduction, ignore_index, label_smoothing, z_loss, scale, softcap),
    )  # fmt: skip
    return found.loss, found.row_max, found.row_log_sum


def _cross_entropy_backward_fake(
    dloss, logits, target, weight, normalizer, row_max, row_log_sum, reduction, ignore_index, label_smoothing, z_loss,
    scale, softcap,
):  # fmt: skip
    return logits.new_empty(logits.shape)


@backward_op("cross_entropy_backward", _cross_entropy_backward_fake)
def cross_entropy_backward(
    dloss: Tensor, logits: Tensor, target: Tensor, weight: Tensor | None, normalizer: Tensor | None, row_max: Tensor,
    row_log_sum: Tensor, reduction: str, ignore_index: int, label_smoothing: float, z_loss: float, scale: float,
    softcap: float,
) -> Tensor:  # fmt: skip
    return kernel("cross_entropy_backward", logits)(
        dloss=dloss, logits=rows(logits), target=target, class_weight=rows(weight),
        normalizer=normalizer, row_max=row_max, row_log_sum=row_log_sum,
        **_options(reduction, ignore_index, label_smoothing, z_loss, scale, softcap),
    ).dlogits  # fmt: skip


def _cross_entropy_setup(ctx, inputs, output):
    logits, target, weight, normalizer, *ctx.options = inputs
    ctx.save_for_backward(logits, target, weight, normalizer, output[1], output[2])
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.set_materialize_grads(False)


def _cross_entropy_gradient(ctx, dloss, *_):
    if dloss is None:
        return (None,) * 10
    logits, target, weight, normalizer, row_max, row_log_sum = ctx.saved_tensors
    dlogits = cross_entropy_backward(dloss, logits, target, weight, normalizer, row_max, row_log_sum, *ctx.options)
    return (dlogits,) + (None,) * 9


cross_entropy_forward.differentiate(_cross_entropy_gradient, _cross_entropy_setup)

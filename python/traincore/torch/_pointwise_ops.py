"""Activations and rotary embedding as custom ops."""

from torch import Tensor

from ._define import backward_op, forward_op, kernel, rows

# Activations --------------------------------------------------------------------------------------------------------


def _rows_of(t: Tensor | None) -> Tensor | None:
    """As rows of at least one dimension."""
    return None if t is None else rows(t if t.dim() else t.reshape(1))


def _shaped(t: Tensor, like: Tensor) -> Tensor:
    """A result for _rows_of(like), and no view, which callers could not change in place."""
    return t if like.dim() else t.reshape(()).clone()


def _activation_fake(gate, up, kind):
    return gate.new_empty(gate.shape)


@forward_op("activation_forward", _activation_fake)
def activation_forward(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    if gate.numel() == 0:
        return gate.new_empty(gate.shape)
    found = kernel("activation_forward", gate)(gate=_rows_of(gate), up=_rows_of(up), kind=kind)
    return _shaped(found.y, gate)


def _activation_backward_fake(dy, gate, up, kind):
    return gate.new_empty(gate.shape), None if up is None else up.new_empty(up.shape)


@backward_op("activation_backward", _activation_backward_fake)
def activation_backward(dy: Tensor, gate: Tensor, up: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    if gate.numel() == 0:
        return _activation_backward_fake(dy, gate, up, kind)
    found = kernel("activation_backward", gate)(
        dy=_rows_of(dy), gate=_rows_of(gate), up=_rows_of(up), kind=kind, dgate=True,
        dup=up is not None,
    )  # fmt: skip
    return _shaped(found.dgate, gate), None if up is None else _shaped(found.dup, up)


def _activation_setup(ctx, inputs, output):
    gate, up, ctx.kind = inputs
    ctx.save_for_backward(gate, up)


def _activation_gradient(ctx, dy):
    gate, up = ctx.saved_tensors
    dgate, dup = activation_backward(dy, gate, up, ctx.kind)
    return dgate, None if up is None else dup, None


activation_forward.differentiate(_activation_gradient, _activation_setup)


# Rotary embedding ---------------------------------------------------------------------------------------------------


def _rope_fake(q, k, cos, sin, positions, pairing):
    return q.new_empty(q.shape), None if k is None else k.new_empty(k.shape)


@forward_op("rope_forward", _rope_fake)
def rope_forward(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None, pairing: str
) -> tuple[Tensor, Tensor]:
    found = kernel("rope_forward", q)(
        q=rows(q), k=rows(k), cos=rows(cos), sin=rows(sin), positions=positions, pairing=pairing,
        k_out=k is not None,
    )  # fmt: skip
    return found.q_out, found.k_out


def _rope_backward_fake(dq_out, dk_out, q, k, cos, sin, positions, pairing):
    dcos, dsin = (None if q is None else table.new_empty(table.shape) for table in (cos, sin))
    return dq_out.new_empty(dq_out.shape), None if dk_out is None else dk_out.new_empty(dk_out.shape), dcos, dsin


@backward_op("rope_backward", _rope_backward_fake)
def rope_backward(
    dq_out: Tensor, dk_out: Tensor | None, q: Tensor | None, k: Tensor | None, cos: Tensor, sin: Tensor,
    positions: Tensor | None, pairing: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """q and k are given for the gradients of the tables, which alone need them."""
    tables = {} if q is None else {"dcos": cos.new_empty(cos.shape), "dsin": sin.new_empty(sin.shape)}
    found = kernel("rope_backward", dq_out)(
        dq_out=rows(dq_out), dk_out=rows(dk_out), q=rows(q), k=rows(k), cos=rows(cos),
        sin=rows(sin), positions=positions, pairing=pairing, dq=True, dk=dk_out is not None, **tables,
    )  # fmt: skip
    return found.dq, found.dk, found.dcos, found.dsin


def _rope_setup(ctx, inputs, output):
    q, k, cos, sin, positions, ctx.pairing = inputs
    ctx.tables, ctx.has_k = cos.requires_grad or sin.requires_grad, k is not None
    ctx.save_for_backward(*((q, k) if ctx.tables else (None, None)), cos, sin, positions)


def _rope_gradient(ctx, dq_out, dk_out):
    dq, dk, dcos, dsin = rope_backward(dq_out, dk_out if ctx.has_k else None, *ctx.saved_tensors, ctx.pairing)
    return dq, dk if ctx.has_k else None, dcos if ctx.tables else None, dsin if ctx.tables else None, None, None


rope_forward.differentiate(_rope_gradient, _rope_setup)

"""Differentiable functions on torch tensors, CPU and CUDA: f32, bf16 and f16 on the kernels, f64 CPU tensors on the
float64 definitions.

Leading dimensions may have any strides; a last dimension that is not contiguous is copied. Results never alias inputs.
Every function works under torch.compile(fullgraph=True) and under autocast, and repeats bit for bit. A second derivative
is refused.
"""

import torch
from torch import Tensor

from . import _attention_ops, _loss_ops, _norm_ops, _pointwise_ops
from ._scalars import names_scalars

_BOTTOM_RIGHT = -(2**63)


def _require_tensors(function: str, optional: tuple[str, ...] = (), **given: Tensor | None) -> None:
    for name, value in given.items():
        if (isinstance(value, Tensor) and value.layout is torch.strided) or (value is None and name in optional):
            continue
        kind = f"{value.layout} tensor" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{function}: {name} is a {kind}, expected a dense torch tensor")


def _autocast(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """The tensors in one dtype: autocast's where that is on, else the promoted one of those given."""
    given = [t for t in tensors if t is not None]
    device = given[0].device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = given[0].dtype
        for t in given[1:]:
            dtype = torch.promote_types(dtype, t.dtype)
    return tuple(None if t is None else t.to(dtype) for t in tensors)


def over_rows(function: str, norm, x: Tensor, shape: tuple[int, ...], *parameters: Tensor | None):
    """norm(x, *parameters) over the trailing dimensions of x, which must be `shape`, as one."""
    _require_tensors(function, x=x)
    if shape and x.shape[-len(shape) :] != shape:
        raise ValueError(f"{function}: x has shape {list(x.shape)}, expected [..., {', '.join(map(str, shape))}]")
    if len(shape) <= 1:
        return norm(x, *parameters)
    return norm(x.flatten(-len(shape)), *(None if p is None else p.flatten() for p in parameters)).reshape(x.shape)


@names_scalars
def rmsnorm(
    x: Tensor, weight: Tensor | None, eps: float = 1e-6, rounding: str = "once", weight_offset: float = 0.0
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * (weight_offset + weight) over the weight's dimensions, the last one without a weight.

    rounding "once": f32 throughout, one cast to x's dtype. "before_weight": the normalised row is rounded to x's dtype,
    then times weight, in the promoted dtype of both, as Hugging Face's Llama does. weight_offset is 1 for Gemma."""
    _require_tensors("rmsnorm", ("weight",), weight=weight)

    def norm(rows, w):
        return _norm_ops.rmsnorm_forward(rows, None, w, eps, weight_offset, rounding)[0]

    return over_rows("rmsnorm", norm, x, () if weight is None else weight.shape, weight)


@names_scalars
def add_rmsnorm(x: Tensor, a: Tensor, weight: Tensor | None, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """(y, h): h = x + a, and its RMSNorm y over the last dimension, rounded before the weight as the two modules one
    after the other do."""
    _require_tensors("add_rmsnorm", ("weight",), x=x, a=a, weight=weight)
    dtype = torch.promote_types(x.dtype, a.dtype)
    y, h, _ = _norm_ops.rmsnorm_forward(x.to(dtype), a.to(dtype), weight, eps, 0.0, "before_weight")
    return y, h


@names_scalars
def layernorm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the parameters' dimensions, the last one without any."""
    _require_tensors("layernorm", ("weight", "bias"), weight=weight, bias=bias)

    def norm(rows, w, b):
        return _norm_ops.layernorm_forward(rows, w, b, eps)[0]

    return over_rows("layernorm", norm, x, next((p.shape for p in (weight, bias) if p is not None), ()), weight, bias)


@names_scalars
def rope(
    q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, positions: Tensor | None = None, pairing: str = "half"
) -> tuple[Tensor, Tensor | None]:
    """Rotary embedding of q and k [batch, heads, seq, dim]; tables [seq, half], [batch, seq, half] or, with positions,
    [rows, half]. pairing "half" turns (i, i + half), "interleaved" (2i, 2i + 1). k may be None."""
    _require_tensors("rope", ("k", "positions"), q=q, k=k, cos=cos, sin=sin, positions=positions)
    q_out, k_out = _pointwise_ops.rope_forward(q, k, cos, sin, positions, pairing)
    return q_out, None if k is None else k_out


@names_scalars
def activation(x: Tensor, kind: str, up: Tensor | None = None) -> Tensor:
    """act(x), or gated act(x) up; kinds silu, sigmoid, gelu_tanh, gelu_erf, quick_gelu, relu, relu2, tanh."""
    _require_tensors("activation", ("up",), x=x, up=up)
    if up is not None and up.dtype != x.dtype:
        x, up = _autocast(x, up)
    return _pointwise_ops.activation_forward(x, up, kind)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) up."""
    return activation(gate, "silu", up)


@names_scalars
def geglu(gate: Tensor, up: Tensor, approximate: str = "tanh") -> Tensor:
    """gelu(gate) up; approximate "tanh" or "none" as in torch.nn.functional.gelu."""
    return activation(gate, _gelu(approximate), up)


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return activation(x, "silu")


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return activation(x, "sigmoid")


@names_scalars
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x); approximate "tanh" or "none" as in torch.nn.functional.gelu."""
    return activation(x, _gelu(approximate))


def _gelu(approximate: str) -> str:
    kinds = {"tanh": "gelu_tanh", "none": "gelu_erf"}
    if approximate not in kinds:
        raise ValueError(f"gelu: approximate is {approximate!r}, expected 'tanh' or 'none'")
    return kinds[approximate]


def quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x)."""
    return activation(x, "quick_gelu")


def relu(x: Tensor) -> Tensor:
    """max(x, 0), whose derivative at 0 is 0."""
    return activation(x, "relu")


def relu2(x: Tensor) -> Tensor:
    """max(x, 0)^2."""
    return activation(x, "relu2")


def tanh(x: Tensor) -> Tensor:
    """tanh(x)."""
    return activation(x, "tanh")


def softmax(x: Tensor) -> Tensor:
    """exp(x - max) / sum over the last dimension; a row of -inf alone is 0."""
    _require_tensors("softmax", x=x)
    return _loss_ops.softmax_forward(x, False)


def log_softmax(x: Tensor) -> Tensor:
    """(x - max) - log sum over the last dimension."""
    _require_tensors("log_softmax", x=x)
    return _loss_ops.softmax_forward(x, True)


@names_scalars
def cross_entropy(
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    logit_scale: float = 1.0,
    softcap: float = 0.0,
    normalizer: Tensor | None = None,
) -> Tensor:
    """Cross entropy of logits [..., classes] with class indices [...]; the loss is f32.

    mean divides by the number of rows that are not ignored (by their weights' sum with weight), or by normalizer, a
    scalar f32 tensor; with no valid row it is 0 and so is its gradient. softcap 0 is none."""
    _require_tensors(
        "cross_entropy", ("weight", "normalizer"), logits=logits, target=target, weight=weight, normalizer=normalizer,
    )  # fmt: skip
    return _loss_ops.cross_entropy_forward(
        logits, target, weight, normalizer, reduction, ignore_index, label_smoothing, z_loss, logit_scale, softcap
    )[0]


@names_scalars
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    causal_offset: int | None = None,
    window_left: int = -1,
    window_right: int = -1,
    softcap: float = 0.0,
    dropout: float = 0.0,
    seed: int = 0,
) -> Tensor:
    """softmax(scale q k^T) v of q [B, Hq, Sq, D] and k, v [B, Hk, Sk, D], Hq a multiple of Hk.

    scale None is 1 / sqrt(D). causal: the last query sees the last key; causal_offset 0 is the top-left corner instead.
    mask is bool, True = visible; bias is added to the scores and has a gradient, as alibi_slopes [Hq] have; both
    broadcast to [B, Hq, Sq, Sk]. A row that sees no key gives 0."""
    optional = {"mask": mask, "bias": bias, "alibi_slopes": alibi_slopes}
    _require_tensors("attention", tuple(optional), q=q, k=k, v=v, **optional)
    q, k, v = _autocast(q, k, v)
    return _attention_ops.attention_forward(
        q, k, v, _four_dimensions(mask), _four_dimensions(bias), alibi_slopes, 0.0 if scale is None else scale, causal,
        _BOTTOM_RIGHT if causal_offset is None else causal_offset, window_left, window_right, softcap, dropout, seed,
    )[0]  # fmt: skip


def _four_dimensions(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or tensor.dim() >= 4:
        return tensor
    return tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape))

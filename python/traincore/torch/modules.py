"""Modules with the parameters, and so the state_dict, of the ones that they replace."""

import torch
from torch import Tensor, nn

from . import functional


class _Norm(nn.Module):
    """A norm over trailing dimensions of these extents, as torch's own have it."""

    def __init__(self, normalized_shape: int | tuple[int, ...], eps: float):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"


class RMSNorm(_Norm):
    """RMSNorm; `weight` as torch.nn.RMSNorm and Hugging Face's LlamaRMSNorm have it.

    `weight_offset=1` with zero-initialised weights is Gemma's."""

    def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-6, elementwise_affine: bool = True, *,
                 rounding: str = "once", weight_offset: float = 0.0, device=None, dtype=None):  # fmt: skip
        super().__init__(normalized_shape, eps)
        start = torch.zeros if weight_offset == 1 else torch.ones
        made = start(self.normalized_shape, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", None if made is None else nn.Parameter(made))
        self.rounding, self.weight_offset = rounding, weight_offset

    def forward(self, x: Tensor) -> Tensor:
        def norm(rows, weight):
            return functional.rmsnorm(rows, weight, self.eps, self.rounding, self.weight_offset)

        return functional.over_rows("RMSNorm", norm, x, self.normalized_shape, self.weight)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rounding={self.rounding!r}"


class LayerNorm(_Norm):
    """LayerNorm, with torch.nn.LayerNorm's parameters."""

    def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True, device=None, dtype=None):  # fmt: skip
        super().__init__(normalized_shape, eps)
        for name, start, given in (("weight", torch.ones, True), ("bias", torch.zeros, bias)):
            made = start(self.normalized_shape, device=device, dtype=dtype) if elementwise_affine and given else None
            self.register_parameter(name, None if made is None else nn.Parameter(made))

    def forward(self, x: Tensor) -> Tensor:
        def norm(rows, weight, bias):
            return functional.layernorm(rows, weight, bias, self.eps)

        return functional.over_rows("LayerNorm", norm, x, self.normalized_shape, self.weight, self.bias)


class SiLU(nn.Module):
    """x sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(x)


class GatedMLP(nn.Module):
    """down_proj(act(gate_proj(x)) up_proj(x)), with the parameters of Hugging Face's LlamaMLP."""

    def __init__(self, hidden_size: int, intermediate_size: int, kind: str = "silu", bias: bool = False,
                 device=None, dtype=None):  # fmt: skip
        super().__init__()
        made = {"bias": bias, "device": device, "dtype": dtype}
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, **made)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, **made)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, **made)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.activation(self.gate_proj(x), self.kind, self.up_proj(x)))


class CrossEntropyLoss(nn.Module):
    """traincore.torch.cross_entropy with fixed options; `weight` is a buffer, as torch.nn.CrossEntropyLoss has it."""

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean",
                 label_smoothing: float = 0.0, z_loss: float = 0.0, logit_scale: float = 1.0, softcap: float = 0.0):  # fmt: skip
        super().__init__()
        self.register_buffer("weight", weight)
        self.options = {
            "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing, "z_loss": z_loss,
            "logit_scale": logit_scale, "softcap": softcap,
        }  # fmt: skip

    def forward(self, logits: Tensor, target: Tensor, normalizer: Tensor | None = None) -> Tensor:
        return functional.cross_entropy(logits, target, self.weight, normalizer=normalizer, **self.options)

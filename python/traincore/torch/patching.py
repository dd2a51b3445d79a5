"""patch(model): the norms, gated MLPs and attention of a Hugging Face decoder, run by TrainCore."""

import types

import torch
from torch import nn

from . import functional

_KINDS = {
    "silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu_erf",
    "quick_gelu": "quick_gelu", "relu": "relu", "relu2": "relu2", "tanh": "tanh", "sigmoid": "sigmoid",
}  # fmt: skip
_FAMILIES = ("Llama", "Qwen", "Mistral", "Gemma")
_ATTENTION = "traincore"


class Patch:
    """What patch(model) did. `replaced` and `skipped` are lists of (module name, what or why); undo() takes it back."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.replaced: list[tuple[str, str]] = []
        self.skipped: list[tuple[str, str]] = []
        self._forwards: list[nn.Module] = []
        self._implementations: list[tuple[object, str]] = []

    def undo(self) -> None:
        """The model as it was. Parameters are the same objects all along."""
        for module in self._forwards:
            del module.forward
        for config, implementation in self._implementations:
            config._attn_implementation = implementation
        self._forwards, self._implementations = [], []

    def _replace(self, name: str, module: nn.Module, forward, what: str) -> None:
        module.forward = types.MethodType(forward, module)
        self._forwards.append(module)
        self.replaced.append((name, what))

    def __repr__(self) -> str:
        lines = [f"Patch of {type(self.model).__name__}:"]
        lines += [f"  replaced {name}: {what}" for name, what in self.replaced]
        lines += [f"  left     {name}: {why}" for name, why in self.skipped]
        return "\n".join(lines)


def patch(model: nn.Module) -> Patch:
    """Lets TrainCore run a Hugging Face Llama, Qwen, Mistral or Gemma model's norms, gated MLPs and attention, in place.

    Parameters and state_dict stay as they are. Each norm keeps the rounding of the module that it replaces. Raises
    ValueError for a model that has none of these modules."""
    found = Patch(model)
    for name, module in model.named_modules():
        kind = type(module).__name__
        if "forward" in vars(module):
            found.skipped.append((name, "its forward was replaced before"))
        elif kind.endswith("RMSNorm"):
            _patch_norm(found, name, module)
        elif kind.endswith("MLP"):
            _patch_mlp(found, name, module)
        elif kind.endswith("RotaryEmbedding"):
            found.skipped.append(
                (name, "rotary embedding is applied by a function of the model's file, not by a module")
            )
        elif isinstance(module, nn.Linear) and name.endswith("lm_head"):
            found.skipped.append((name, "the loss belongs to the caller: use traincore.torch.cross_entropy"))
    _patch_attention(found, model)
    if not found.replaced:
        raise ValueError(
            f"patch: {type(model).__name__} has no module to replace; models of {', '.join(_FAMILIES)} have: {found!r}"
        )
    return found


# Norms --------------------------------------------------------------------------------------------------------------


def _patch_norm(found: Patch, name: str, module: nn.Module) -> None:
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weight = getattr(module, "weight", None)
    if eps is None or not isinstance(weight, nn.Parameter) or weight.dim() != 1:
        found.skipped.append((name, "an RMSNorm without one weight per column and an epsilon"))
        return
    offset = _weight_offset(module)
    if offset is None:
        found.skipped.append((name, "it computes something else than RMSNorm of its input, or rounds otherwise"))
        return
    rounding = "once" if offset else "before_weight"

    def forward(self, x):
        exact = x.dtype in (torch.float32, torch.float64) and x.dtype == self.weight.dtype
        return functional.rmsnorm(x, self.weight, eps, "once" if exact else rounding, offset)

    found._replace(name, module, forward, f"rmsnorm, rounding {rounding!r}, weight offset {offset:g}")


def _weight_offset(module: nn.Module) -> float | None:
    """0 for weight * norm(x), 1 for Gemma's (1 + weight) * norm(x), told by a row; None for anything else."""
    weight = module.weight
    with torch.no_grad():
        row = torch.linspace(-1, 2, weight.numel(), dtype=torch.float32, device=weight.device).to(weight.dtype)
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        wide = row.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean() + eps)
        given = module(row[None])[0].float()
        for offset in (0.0, 1.0):
            expected = normal * (offset + weight.float())
            if torch.allclose(given, expected, rtol=2e-2, atol=1e-5):
                return offset
    return None


# Gated MLPs ---------------------------------------------------------------------------------------------------------


def _patch_mlp(found: Patch, name: str, module: nn.Module) -> None:
    parts = ("gate_proj", "up_proj", "down_proj", "act_fn")
    if not all(hasattr(module, part) for part in parts):
        found.skipped.append((name, "an MLP without gate_proj, up_proj, down_proj and act_fn"))
        return
    config = getattr(module, "config", None)
    named = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    kind = _KINDS.get(named)
    if kind is None:
        found.skipped.append((name, f"its activation {named!r} is none of {', '.join(sorted(_KINDS))}"))
        return

    def forward(self, x):
        return self.down_proj(functional.activation(self.gate_proj(x), kind, self.up_proj(x)))

    found._replace(name, module, forward, f"gated activation {kind}")


# Attention ----------------------------------------------------------------------------------------------------------


def _attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, softcap=None,
                       **options):  # fmt: skip
    """What Hugging Face's attention modules call; a mask says all about visibility, or there is none."""
    if dropout:
        raise ValueError("patch: attention dropout is not served; set attention_dropout to 0, or undo the patch")
    causal = module.is_causal if is_causal is None else is_causal
    mask = bias = None
    if attention_mask is not None:
        mask, bias = (attention_mask, None) if attention_mask.dtype is torch.bool else (None, attention_mask)
    output = functional.attention(
        query, key, value, causal=bool(causal) and attention_mask is None and query.shape[2] > 1, scale=scaling,
        mask=mask, bias=bias, softcap=softcap or 0.0,
    )  # fmt: skip
    return output.transpose(1, 2), None


def _register_attention() -> str | None:
    """Makes the implementation known to transformers; the reason why not if it cannot be."""
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
    except ImportError:
        return "this transformers has no AttentionInterface; 4.53 and later have"
    AttentionInterface.register(_ATTENTION, _attention_forward)
    AttentionMaskInterface.register(_ATTENTION, sdpa_mask)
    return None


def _patch_attention(found: Patch, model: nn.Module) -> None:
    modules = [
        (n, m) for n, m in model.named_modules() if type(m).__name__.endswith("Attention") and hasattr(m, "config")
    ]
    if not modules:
        return
    why = _register_attention()
    for name, module in modules:
        if why or module.config._attn_implementation == _ATTENTION:
            found.skipped.append((name, why or "its attention was replaced before"))
        elif getattr(module, "attention_dropout", 0.0):
            found.skipped.append((name, "attention dropout is not served"))
        else:
            found.replaced.append((name, "attention"))
    if any(what == "attention" for _, what in found.replaced):
        for config in {id(m.config): m.config for _, m in modules}.values():
            found._implementations.append((config, config._attn_implementation))
            config._attn_implementation = _ATTENTION

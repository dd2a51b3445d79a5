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
        elif kind.endswith(("Experts", "MoeBlock")):
            found.skipped.append((name, "a mixture of experts routes its rows itself"))
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
    form = _norm_form(module, eps)
    if form is None:
        found.skipped.append((name, "it computes something else than RMSNorm of its input"))
        return
    offset, rounding = form

    def forward(self, x):
        return functional.rmsnorm(x, self.weight, eps, rounding, offset)

    found._replace(name, module, forward, f"rmsnorm, rounding {rounding!r}, weight offset {offset:g}")


def _norm_form(module: nn.Module, eps: float) -> tuple[float, str] | None:
    """(weight offset, rounding) of a norm, told by one row of 16 bits and a weight that is not its own; None for a
    module that is no RMSNorm. The offset is 0 for weight * norm(x), 1 for Gemma's (1 + weight) * norm(x)."""
    own = module.weight
    weight = torch.linspace(0.5, 1.5, own.numel(), device=own.device).to(own.dtype)
    row_dtype = own.dtype if own.element_size() == 2 else torch.bfloat16
    row = torch.linspace(-1, 2, own.numel(), device=own.device).to(row_dtype)
    with torch.no_grad():
        given = torch.func.functional_call(module, {"weight": weight}, (row[None],))[0]
        wide = row.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean() + eps)
        for offset in (0.0, 1.0):
            forms = {
                "before_weight": normal.to(row.dtype) * (offset + weight),
                "once": (normal * (offset + weight.float())).to(row.dtype),
            }
            if torch.allclose(given.float(), forms["once"].float(), rtol=2e-2, atol=1e-5):
                return offset, max(forms, key=lambda rounding: _equal_elements(forms[rounding], given))
    return None


def _equal_elements(form: torch.Tensor, given: torch.Tensor) -> int:
    return int((form == given).sum()) if form.dtype == given.dtype else -1


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
    if options.get("s_aux") is not None:
        raise ValueError("patch: attention sinks are not served; undo the patch")
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
    """The modules that share a configuration call one implementation: all of them are replaced, or none is."""
    shared: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        if type(module).__name__.endswith("Attention") and hasattr(module, "config"):
            shared.setdefault(id(module.config), []).append((name, module))
    unknown = _register_attention() if shared else None
    for modules in shared.values():
        why = unknown or next(filter(None, (_unserved_attention(module) for _, module in modules)), None)
        if why:
            found.skipped += [(name, why) for name, _ in modules]
            continue
        config = modules[0][1].config
        found.replaced += [(name, "attention") for name, _ in modules]
        found._implementations.append((config, config._attn_implementation))
        config._attn_implementation = _ATTENTION


def _unserved_attention(module: nn.Module) -> str | None:
    """Why an attention module cannot be replaced; None if it can."""
    if module.config._attn_implementation == _ATTENTION:
        return "its attention was replaced before"
    if getattr(module, "attention_dropout", 0.0):
        return "attention dropout is not served"
    return "attention sinks are not served" if hasattr(module, "sinks") else None

"""patch(model): Hugging Face decoders give the logits and gradients that they gave before."""

import pytest
from torch_support import error, needs, on_every_device, torch

import traincore as tc
import traincore.torch as tct

transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 101, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 12,
}  # fmt: skip
MODELS = {
    "Llama": {}, "Qwen2": {}, "Qwen3": {}, "Mistral": {"sliding_window": 5}, "Gemma": {},
    "Gemma2": {"sliding_window": 4, "query_pre_attn_scalar": 12}, "Gemma3": {"sliding_window": 4, "query_pre_attn_scalar": 12},
}  # fmt: skip
CONFIGS = {"Gemma3": "Gemma3TextConfig"}
every_model = pytest.mark.parametrize("family", MODELS)


def build(family, device, dtype=torch.float32):
    config = getattr(transformers, CONFIGS.get(family, f"{family}Config"))(**SMALL, **MODELS.get(family, {}))
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, p in model.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(p, 0.0 if "Gemma" in family else 1.0, 0.2)
    return model.to(device=device, dtype=dtype)


def logits_and_gradients(model, device, padded=False):
    ids = torch.arange(2 * 17, device=device).reshape(2, 17) * 7 % 101
    mask = torch.ones_like(ids)
    labels = ids.clone()
    if padded:  # what the padding computes is nobody's business: no loss comes from there
        mask[0, :4] = 0
        labels[0, :5] = -100
    model.zero_grad()
    found = model(input_ids=ids, attention_mask=mask, labels=labels)
    found.loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters()}
    visible = mask.bool()
    return found.logits.detach()[visible], gradients


def serve(device):
    for op in ("rmsnorm", "activation", "attention"):
        needs(device, f"{op}_forward", f"{op}_backward")


@on_every_device
@every_model
@pytest.mark.parametrize("padded", [False, True])
def test_logits_and_gradients_stay(device, family, padded):
    serve(device)
    model = build(family, device)
    expected, expected_gradients = logits_and_gradients(model, device, padded)
    patched = tct.patch(model)
    tc.calls.reset()
    found, gradients = logits_and_gradients(model, device, padded)
    assert tc.calls.count("attention_forward", device) == 2 and tc.calls.count("activation_backward", device) == 2
    assert tc.calls.count("rmsnorm_forward", device) >= 5
    assert error(found, expected) < 2e-5
    for name, gradient in gradients.items():
        assert error(gradient, expected_gradients[name]) < 2e-4, name
    kinds = {what.split(",")[0].split(" ")[0] for _, what in patched.replaced}
    assert kinds == {"rmsnorm", "gated", "attention"}
    assert any("rotary" in why for _, why in patched.skipped)
    assert "replaced model.layers.0.mlp" in repr(patched)


@on_every_device
@pytest.mark.parametrize("family, rounding", [("Llama", "before_weight"), ("Gemma", "once"), ("Olmo2", "once")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_half_precision_rounds_as_the_modules_do(device, family, rounding, dtype):
    """Also where a norm's weights stay f32: Llama's answer is then f32, Gemma's and OLMo's is not."""
    serve(device)
    model = build(family, device, dtype)
    norm = model.model.norm
    x = torch.randn(300, 48, device=device, dtype=torch.bfloat16)
    expected = norm(x)
    patched = tct.patch(model)
    assert f"rmsnorm, rounding {rounding!r}" in dict(patched.replaced)["model.norm"]
    found = norm(x)
    assert found.dtype == expected.dtype
    assert float((found != expected).float().mean()) < 0.02 and error(found, expected) < 1e-2


@on_every_device
def test_undo(device):
    serve(device)
    model = build("Llama", device)
    expected, _ = logits_and_gradients(model, device)
    before = list(model.state_dict())
    patched = tct.patch(model)
    assert list(model.state_dict()) == before
    with pytest.raises(ValueError, match="no module to replace"):
        tct.patch(model)
    patched.undo()
    tc.calls.reset()
    found, _ = logits_and_gradients(model, device)
    assert tc.calls.counts() == {} and torch.equal(found, expected)
    assert model.config._attn_implementation == "eager"


@on_every_device
def test_attention_with_sinks_is_left_alone(device):
    """A mixture of experts, of which the norms alone are served: nothing that the model computes is dropped."""
    serve(device)
    options = {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4, "rope_scaling": None}
    config = transformers.GptOssConfig(**SMALL | options, attn_implementation="eager", eos_token_id=1, pad_token_id=0)
    torch.manual_seed(0)
    model = transformers.GptOssForCausalLM(config).to(device).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    ids = torch.arange(17, device=device)[None]
    with torch.no_grad():
        expected = model(ids).logits
        patched = tct.patch(model)
        assert error(model(ids).logits, expected) < 2e-5
    left = dict(patched.skipped)
    assert left["model.layers.0.self_attn"] == "attention sinks are not served"
    assert "experts" in left["model.layers.0.mlp.experts"]
    assert not any(what == "attention" for _, what in patched.replaced)
    assert model.config._attn_implementation == "eager"


@on_every_device
def test_a_patched_model_compiles_and_checkpoints_its_activations(device):
    serve(device)
    model = build("Llama", device)
    tct.patch(model)
    ids = torch.arange(2 * 17, device=device).reshape(2, 17) * 7 % 101

    def gradients(function):
        model.zero_grad()
        function(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = gradients(model)
    compiled = gradients(torch.compile(model, fullgraph=True, backend="aot_eager"))
    model.gradient_checkpointing_enable()
    for one, other, third in zip(expected, compiled, gradients(model)):
        assert torch.equal(one, other) and torch.equal(one, third)


@on_every_device
def test_generation_with_a_cache(device):
    serve(device)
    model = build("Llama", device).eval()
    ids = torch.arange(5, device=device)[None]
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(ids, **options)
    tct.patch(model)
    assert torch.equal(model.generate(ids, **options), expected)


def test_what_is_left_says_why():
    class OddRMSNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.ones(8)), 1e-6

        def forward(self, x):
            return x * self.weight

    with pytest.raises(ValueError, match="computes something else than RMSNorm"):
        tct.patch(torch.nn.Sequential(OddRMSNorm()))
    with pytest.raises(ValueError, match="no module to replace"):
        tct.patch(torch.nn.Linear(2, 2))

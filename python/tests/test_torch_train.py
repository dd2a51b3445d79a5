"""Training through the torch face: a small network against plain torch, AdamW against torch's, state_dicts both ways."""

import io

import pytest
from torch_support import error, needs, on_every_device, randn, torch

import traincore as tc
import traincore.torch as tct

ROWS, WIDTH, STEPS = 32, 48, 100


def network(norm, act, device):
    """Linear -> RMSNorm -> SiLU -> Linear, from a fixed start."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(20, WIDTH), norm, act, torch.nn.Linear(WIDTH, 1))
    return net.to(device)


def ours(device):
    return network(tct.RMSNorm(WIDTH, eps=1e-6), tct.SiLU(), device)


def plain(device):
    return network(torch.nn.RMSNorm(WIDTH, eps=1e-6), torch.nn.SiLU(), device)


def data(device):
    x = randn(device, STEPS * ROWS + 500, 20)
    y = torch.sin(x[:, :1] * 2) + 0.5 * x[:, 1:2] * x[:, 2:3]
    return x, y


def train(net, device):
    x, y = data(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x[rows]), y[rows]).backward()
        optimizer.step()


def mean_error(net, device):
    x, y = data(device)
    with torch.no_grad():
        return torch.nn.functional.mse_loss(net(x[STEPS * ROWS :]), y[STEPS * ROWS :]).item()


@on_every_device
def test_a_network_trains_as_in_plain_torch(device):
    needs(device, "rmsnorm_forward", "rmsnorm_backward", "activation_forward", "activation_backward")
    one, other = ours(device), plain(device)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values()))
    assert list(one.state_dict()) == list(other.state_dict())
    x, y = data(device)
    first = [torch.nn.functional.mse_loss(net(x[:ROWS]), y[:ROWS]) for net in (one, other)]
    assert error(one(x[:ROWS]), other(x[:ROWS])) <= 1e-6
    grads = [torch.autograd.grad(loss, list(net.parameters())) for loss, net in zip(first, (one, other))]
    for a, b in zip(*grads):
        assert float((a - b).abs().max()) <= 1e-6
    tc.calls.reset()
    train(one, device)
    passes = [
        (op, f"{op}_{direction}", device) for op in ("rmsnorm", "activation") for direction in ("forward", "backward")
    ]
    assert tc.calls.counts() == dict.fromkeys(passes, STEPS)
    train(other, device)
    assert mean_error(one, device) == pytest.approx(mean_error(other, device), rel=1e-4)
    saved = io.BytesIO()
    torch.save(one.state_dict(), saved)
    saved.seek(0)
    again = ours(device)
    again.load_state_dict(torch.load(saved))
    with torch.no_grad():
        assert float((again(x) - one(x)).abs().max()) == 0


def parameters(device, dtype=torch.float32):
    return [
        torch.nn.Parameter(randn(device, *s, dtype=dtype, seed=i)) for i, s in enumerate([(5, 7), (33,), (2, 3, 4)])
    ]


def steps(optimizer, params, count, start=0):
    for step in range(start, start + count):
        for i, p in enumerate(params):
            p.grad = randn(p.device.type, *p.shape, dtype=p.dtype, seed=100 + 10 * step + i)
        optimizer.step()


@on_every_device
def test_adamw_is_torchs(device):
    needs(device, "adamw")
    params, same = parameters(device), parameters(device)
    options = {"lr": 1e-2, "betas": (0.8, 0.95), "eps": 1e-7, "weight_decay": 0.1}
    steps(tct.AdamW(params, **options), params, 20)
    steps(torch.optim.AdamW(same, **options), same, 20)
    for p, q in zip(params, same):
        assert error(p, q) < 3e-6


@on_every_device
@pytest.mark.parametrize("first, second", [(tct.AdamW, torch.optim.AdamW), (torch.optim.AdamW, tct.AdamW)])
def test_adamw_state_goes_both_ways(device, first, second):
    needs(device, "adamw")
    params, same = parameters(device), parameters(device)
    one, other = first(params, lr=1e-2), torch.optim.AdamW(same, lr=1e-2)
    steps(one, params, 5)
    steps(other, same, 10)
    continued = second(params, lr=1e-2)
    continued.load_state_dict(one.state_dict())
    steps(continued, params, 5, start=5)
    for p, q in zip(params, same):
        assert error(p, q) < 3e-6


@on_every_device
def test_groups_and_frozen_parameters(device):
    needs(device, "adamw")
    params, same = parameters(device), parameters(device)
    for made, kind in ((params, tct.AdamW), (same, torch.optim.AdamW)):
        groups = [{"params": made[:1], "weight_decay": 0.0}, {"params": made[1:], "lr": 0.5}]
        optimizer = kind(groups, lr=1e-2, weight_decay=0.1)
        steps(optimizer, made[:2], 3)
    assert torch.equal(params[2], same[2])
    for p, q in zip(params, same):
        assert error(p, q) < 3e-6


@on_every_device
def test_bf16_with_stochastic_rounding_repeats_and_moves(device):
    needs(device, "adamw")

    def run():
        params = parameters(device, torch.bfloat16)
        steps(tct.AdamW(params, lr=1e-5, weight_decay=0, rounding="stochastic", seed=5), params, 200)
        return params

    one, other, start = run(), run(), parameters(device, torch.bfloat16)
    assert all(torch.equal(p, q) for p, q in zip(one, other))
    assert any(not torch.equal(p, q) for p, q in zip(one, start))


@on_every_device
def test_capturable_steps_and_rates_live_on_the_device(device):
    """PT#76368: a captured step must not freeze the step count or the rate."""
    needs(device, "adamw")
    params, same = parameters(device), parameters(device)
    rate = torch.tensor(1e-2, device=device)
    optimizer = tct.AdamW(params, lr=rate, capturable=True)
    other = torch.optim.AdamW(same, lr=1e-2)
    for p, q in zip(params, same):
        p.grad, q.grad = (torch.full_like(p, 0.3) for _ in range(2))
    run = capture(optimizer) if device == "cuda" else optimizer.step
    for _ in range(optimizer_steps(optimizer)):
        other.step()
    for factor in (1.0, 0.5, 0.25):
        rate.fill_(1e-2 * factor)
        other.param_groups[0]["lr"] = 1e-2 * factor
        run()
        other.step()
    for p, q in zip(params, same):
        assert error(p, q) < 3e-6
    assert optimizer_steps(optimizer) == other.state[same[0]]["step"]


def optimizer_steps(optimizer) -> int:
    states = list(optimizer.state.values())
    return int(states[0]["step"]) if states else 0


def capture(optimizer):
    """The optimizer's step as a CUDA graph, after one step on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph.replay


def test_a_transposed_parameter_is_updated():
    wide = randn("cpu", 4, 6)
    p, q = torch.nn.Parameter(wide.t()), torch.nn.Parameter(wide.t().contiguous())
    for made in (p, q):
        made.grad = torch.ones_like(made)
        tct.AdamW([made], lr=0.1).step()
    assert torch.equal(p, q)


def test_adamw_refusals():
    with pytest.raises(ValueError, match="lr is -1"):
        tct.AdamW(parameters("cpu"), lr=-1)
    for kind, named, options in (
        (TypeError, "lr is 'x'", {"lr": "x"}), (ValueError, "weight_decay is nan", {"weight_decay": float("nan")}),
        (TypeError, "betas is 0.9", {"betas": 0.9}), (ValueError, r"betas\[1\] is 1.0", {"betas": (0.9, 1.0)}),
    ):  # fmt: skip
        with pytest.raises(kind, match=named):
            tct.AdamW(parameters("cpu"), **options)
    with pytest.raises(ValueError, match="rounding is 'up'"):
        tct.AdamW(parameters("cpu"), rounding="up")
    with pytest.raises(TypeError):
        tct.AdamW(parameters("cpu"), amsgrad=True)
    params = parameters("cpu")
    with pytest.raises(ValueError, match="amsgrad=True"):
        tct.AdamW(params).load_state_dict(torch.optim.AdamW(params, amsgrad=True).state_dict())
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        tct.AdamW(embedding.parameters()).step()


NORMS = {
    "RMSNorm": ((7,), {}), "RMSNorm of two": (((5, 7),), {}), "RMSNorm without weight": ((7, 1e-5, False), {}),
    "LayerNorm": ((7,), {}), "LayerNorm of two": (((5, 7), 1e-3), {}), "LayerNorm without weight": (((5, 7), 1e-5, False), {}),
    "LayerNorm without bias": ((7,), {"bias": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_torchs(name):
    """The same arguments, the same state_dict, the same answer."""
    given, options = NORMS[name]
    kind = name.split()[0]
    if kind == "RMSNorm":
        given = (given[0], 1e-6, *given[2:])  # torch's own default follows the dtype
    one, other = getattr(tct, kind)(*given, **options), getattr(torch.nn, kind)(*given, **options)
    for p in other.parameters():
        torch.nn.init.normal_(p)
    one.load_state_dict(other.state_dict())
    assert list(one.state_dict()) == list(other.state_dict())
    x = randn("cpu", 3, 5, 7)
    assert error(one(x), other(x)) < 1e-6
    with pytest.raises(ValueError, match=f"{kind}: x has shape"):
        one(x[..., :6])


def test_modules_have_the_state_of_what_they_replace():
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=4, intermediate_size=6, num_attention_heads=1)
    for one, other in (
        (tct.GatedMLP(4, 6), llama.LlamaMLP(config)),
        (tct.RMSNorm(4, rounding="before_weight"), llama.LlamaRMSNorm(4)),
    ):
        one.load_state_dict(other.state_dict())
        assert list(one.state_dict()) == list(other.state_dict())
        x = randn("cpu", 3, 4)
        assert error(one(x), other(x)) < 1e-6


def test_a_loss_moves_with_its_weight():
    logits, target, weight = randn("cpu", 3, 4), torch.tensor([0, 1, 2]), torch.tensor([1.0, 2, 3, 4])
    for options in ({"label_smoothing": 0.1}, {"weight": weight}, {"ignore_index": 1, "reduction": "sum"}):
        one, other = tct.CrossEntropyLoss(**options), torch.nn.CrossEntropyLoss(**options)
        assert list(one.state_dict()) == list(other.state_dict())
        assert error(one(logits, target), other(logits, target)) < 1e-6
    with pytest.raises(TypeError, match="smoothing"):
        tct.CrossEntropyLoss(smoothing=0.1)

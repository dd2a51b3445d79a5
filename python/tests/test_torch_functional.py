"""traincore.torch: values and gradients against float64 torch, gradcheck of the definitions, torch.compile, autocast."""

import functools

import pytest
from torch_support import error, needs, on_every_device, randn, torch

import traincore as tc
import traincore.torch as tct

F = torch.nn.functional


def plain_rope(q, k, cos, sin):
    def turn(x):
        half = cos.shape[-1]
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), -1)

    return turn(q), turn(k)


def plain_attention(q, k, v):
    k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
    visible = torch.arange(k.shape[2])[None] <= torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible.to(q.device))


TARGET = torch.tensor([[1, -100, 4], [0, 8, 3]])

# name: (passes, shapes of the inputs, ours, plain torch)
CASES = {
    "rmsnorm": ("rmsnorm", [(2, 3, 33), (33,)], lambda x, w: tct.rmsnorm(x, w), lambda x, w: F.rms_norm(x, w.shape, w, 1e-6)),
    "gemma": (
        "rmsnorm", [(2, 3, 33), (33,)], lambda x, w: tct.rmsnorm(x, w, 1e-5, weight_offset=1.0),
        lambda x, w: F.rms_norm(x, w.shape, 1 + w, 1e-5),
    ),
    "add_rmsnorm": (
        "rmsnorm", [(2, 3, 33), (2, 3, 33), (33,)], lambda x, a, w: tct.add_rmsnorm(x, a, w, 1e-5),
        lambda x, a, w: (F.rms_norm(x + a, w.shape, w, 1e-5), x + a),
    ),
    "layernorm": (
        "layernorm", [(2, 3, 33), (33,), (33,)], lambda x, w, b: tct.layernorm(x, w, b),
        lambda x, w, b: F.layer_norm(x, w.shape, w, b),
    ),
    "swiglu": ("activation", [(4, 9), (4, 9)], tct.swiglu, lambda g, u: F.silu(g) * u),
    "geglu": ("activation", [(4, 9), (4, 9)], tct.geglu, lambda g, u: F.gelu(g, approximate="tanh") * u),
    "gelu": ("activation", [(4, 9)], tct.gelu, F.gelu),
    "silu": ("activation", [(2, 3, 9)], tct.silu, F.silu),
    "sigmoid": ("activation", [(4, 9)], tct.sigmoid, torch.sigmoid),
    "quick_gelu": ("activation", [(4, 9)], tct.quick_gelu, lambda x: x * torch.sigmoid(1.702 * x)),
    "relu2": ("activation", [(4, 9)], tct.relu2, lambda x: F.relu(x) ** 2),
    "tanh": ("activation", [(4, 9)], tct.tanh, torch.tanh),
    "softmax": ("softmax", [(4, 9)], tct.softmax, lambda x: x.softmax(-1)),
    "log_softmax": ("log_softmax", [(4, 9)], tct.log_softmax, lambda x: x.log_softmax(-1)),
    "cross_entropy": (
        "cross_entropy", [(2, 3, 9)], lambda x: tct.cross_entropy(x, TARGET.to(x.device), label_smoothing=0.1),
        lambda x: F.cross_entropy(x.flatten(0, 1), TARGET.to(x.device).flatten(), label_smoothing=0.1),
    ),
    "weighted": (
        "cross_entropy", [(2, 3, 9)],
        lambda x: tct.cross_entropy(x, TARGET.to(x.device), torch.arange(1.0, 10, device=x.device).to(x.dtype), reduction="sum"),
        lambda x: F.cross_entropy(
            x.flatten(0, 1), TARGET.to(x.device).flatten(), torch.arange(1.0, 10, device=x.device).to(x.dtype), reduction="sum"
        ),
    ),
    "rope": ("rope", [(2, 4, 5, 8), (2, 2, 5, 8), (5, 3), (5, 3)], tct.rope, plain_rope),
    "attention": (
        "attention", [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8)], lambda q, k, v: tct.attention(q, k, v, causal=True),
        plain_attention,
    ),
    "biased": (
        "attention", [(1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8), (1, 2, 1, 7)],
        lambda q, k, v, b: tct.attention(q, k, v, bias=b),
        lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, attn_mask=b.expand(1, 2, 5, 7)),
    ),
}  # fmt: skip
every_case = pytest.mark.parametrize("name", CASES)


def inputs(shapes, device, dtype):
    return [randn(device, *shape, dtype=dtype, seed=i, grad=True) for i, shape in enumerate(shapes)]


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def outputs_and_gradients(function, given):
    found = as_tuple(function(*given))
    seeds = [randn("cpu", *f.shape, seed=77 + i).to(f) for i, f in enumerate(found)]
    return found, torch.autograd.grad(found, given, seeds)


def serve(device, op):
    needs(device, f"{op}_forward", f"{op}_backward")


@functools.cache
def sums_dbias() -> bool:
    """Whether this library's attention has a gradient of its bias."""
    try:
        outputs_and_gradients(CASES["biased"][2], inputs(CASES["biased"][1], "cpu", torch.float32))
    except tc.Unsupported:
        return False
    return True


@pytest.fixture(autouse=True)
def skip_what_is_not_served(request):
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    if name == "biased" and not sums_dbias():
        pytest.skip("this library's attention has no gradient of the bias")


@on_every_device
@every_case
def test_f32_against_float64(device, name):
    op, shapes, ours, plain = CASES[name]
    serve(device, op)
    found, gradients = outputs_and_gradients(ours, inputs(shapes, device, torch.float32))
    exact, exact_gradients = outputs_and_gradients(plain, inputs(shapes, device, torch.float64))
    wide = [t.detach().float().double().requires_grad_() for t in inputs(shapes, device, torch.float64)]
    exact, exact_gradients = outputs_and_gradients(plain, wide)
    for one, other in zip((*found, *gradients), (*exact, *exact_gradients)):
        assert error(one, other) < 3e-6


@on_every_device
@every_case
def test_bf16_against_float64(device, name):
    op, shapes, ours, plain = CASES[name]
    serve(device, op)
    if name == "add_rmsnorm":
        pytest.skip("rounded before the weight: test_add_rmsnorm_rounds_as_two_modules_do")
    given = inputs(shapes, device, torch.bfloat16)
    found, gradients = outputs_and_gradients(ours, given)
    wide = [t.detach().double().requires_grad_() for t in given]
    exact, exact_gradients = outputs_and_gradients(plain, wide)
    for one, other in zip((*found, *gradients), (*exact, *exact_gradients)):
        assert one.dtype in (torch.bfloat16, torch.float32) and error(one, other) < 2e-2


@every_case
def test_gradcheck_of_the_definition(name):
    op, shapes, ours, _ = CASES[name]
    needs("cpu", f"{op}_forward")
    assert torch.autograd.gradcheck(ours, inputs(shapes, "cpu", torch.float64))


@on_every_device
@every_case
def test_compiles_without_graph_breaks(device, name):
    op, shapes, ours, _ = CASES[name]
    serve(device, op)
    found, gradients = outputs_and_gradients(ours, inputs(shapes, device, torch.float32))
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    again, gradients_again = outputs_and_gradients(compiled, inputs(shapes, device, torch.float32))
    for one, other in zip((*found, *gradients), (*again, *gradients_again)):
        assert torch.equal(one, other)


@on_every_device
@every_case
def test_repeats_bit_for_bit(device, name):
    op, shapes, ours, _ = CASES[name]
    serve(device, op)
    runs = [outputs_and_gradients(ours, inputs(shapes, device, torch.float32)) for _ in range(2)]
    for one, other in zip((*runs[0][0], *runs[0][1]), (*runs[1][0], *runs[1][1])):
        assert torch.equal(one, other)


@on_every_device
@every_case
def test_strided_inputs_and_expanded_gradients(device, name):
    op, shapes, ours, _ = CASES[name]
    serve(device, op)

    def strided(t):
        """The same values behind strides: every second of a wider last dimension."""
        wide = torch.stack((t.detach(), torch.full_like(t, 9)), -1)
        return wide[..., 0].requires_grad_()

    dense = inputs(shapes, device, torch.float32)
    views = [strided(t) for t in dense]
    ones = [torch.ones((), device=device).expand(f.shape) for f in as_tuple(ours(*dense))]
    expected = torch.autograd.grad(as_tuple(ours(*dense)), dense, [o.contiguous() for o in ones])
    for one, other in zip(torch.autograd.grad(as_tuple(ours(*views)), views, ones), expected):
        assert torch.equal(one, other)


@on_every_device
@every_case
def test_second_derivative_is_refused(device, name):
    op, shapes, ours, _ = CASES[name]
    serve(device, op)
    given = inputs(shapes, device, torch.float32)
    found = as_tuple(ours(*given))
    first = torch.autograd.grad(found, given[:1], [torch.ones_like(f) for f in found], create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative is not served"):
        first[0].sum().backward()


@on_every_device
def test_only_the_gradients_asked_for(device):
    serve(device, "rmsnorm")
    x, w = randn(device, 3, 7, grad=True), randn(device, 7)
    tct.rmsnorm(x, w).sum().backward()
    assert x.grad is not None and w.grad is None


@on_every_device
def test_add_rmsnorm_uses_h_alone(device):
    serve(device, "rmsnorm")
    x, a, w = (randn(device, *s, seed=i, grad=True) for i, s in enumerate([(3, 7), (3, 7), (7,)]))
    _, h = tct.add_rmsnorm(x, a, w, 1e-6)
    h.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x)) and torch.equal(a.grad, torch.ones_like(a))


def before_weight_is_served() -> bool:
    x = torch.ones(1, 3, dtype=torch.bfloat16)
    try:
        tc.ops.rmsnorm_forward(x=x, weight=x[0], eps=1e-6, rounding="before_weight")
    except tc.Unsupported:
        return False
    return True


@on_every_device
def test_add_rmsnorm_rounds_as_two_modules_do(device):
    serve(device, "rmsnorm")
    if not before_weight_is_served():
        pytest.skip("this library does not round before the weight")
    x, a = (randn(device, 4, 65, dtype=torch.bfloat16, seed=i) for i in range(2))
    w = randn(device, 65, dtype=torch.bfloat16)
    y, h = tct.add_rmsnorm(x, a, w, 1e-6)
    assert torch.equal(h, x + a)
    wide = h.float()
    normal = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(torch.bfloat16)
    assert error(y, w * normal) < 5e-3


@on_every_device
def test_autocast(device):
    serve(device, "attention")
    serve(device, "rmsnorm")
    q, k, v = (randn(device, 1, 2, 5, 8, seed=i) for i in range(3))
    linear = torch.nn.Linear(8, 8, device=device)
    with torch.autocast(device, torch.bfloat16):
        assert tct.attention(linear(q), k, v).dtype == torch.bfloat16
        y = tct.rmsnorm(linear(q), torch.ones(8, device=device))
    y.float().sum().backward()
    assert linear.weight.grad is not None and torch.isfinite(linear.weight.grad).all()


@on_every_device
def test_empty(device):
    serve(device, "rmsnorm")
    x, w = torch.empty(0, 7, device=device, requires_grad=True), randn(device, 7, grad=True)
    tct.rmsnorm(x, w).sum().backward()
    assert x.grad.shape == (0, 7) and not w.grad.any()


@pytest.mark.parametrize(
    "op", ["rmsnorm_forward", "activation_forward", "softmax_forward", "cross_entropy_forward", "rope_forward"]
)
def test_operators_are_well_registered(op):
    """Schemas, fake kernels and autograd registration, by torch's own checker."""
    x = randn("cpu", 2, 2, 4, 8, grad=True)
    table = randn("cpu", 4, 3)
    samples = {
        "rmsnorm_forward": (x, randn("cpu", 8), 1e-6, 0.0, "once"),
        "activation_forward": (x, x.detach() + 1, "silu"),
        "softmax_forward": (x, False),
        "cross_entropy_forward": (
            x,
            torch.ones(2, 2, 4, dtype=torch.long),
            None,
            None,
            "mean",
            -100,
            0.0,
            0.0,
            1.0,
            0.0,
        ),
        "rope_forward": (x, None, table, table, None, "half"),
    }
    torch.library.opcheck(getattr(torch.ops.traincore, op), samples[op])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", CASES)
def test_cuda_graphs(name):
    op, shapes, ours, _ = CASES[name]
    serve("cuda", op)
    given = inputs(shapes, "cuda", torch.float32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            outputs_and_gradients(ours, given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    seeds = [torch.ones_like(f) for f in as_tuple(ours(*given))]
    with torch.cuda.graph(graph):
        found = as_tuple(ours(*given))
        gradients = torch.autograd.grad(found, given, seeds)
    with torch.no_grad():
        for t in given:
            t.mul_(0.5)
    graph.replay()
    expected = as_tuple(ours(*given))
    expected_gradients = torch.autograd.grad(expected, given, seeds)
    for one, other in zip((*found, *gradients), (*expected, *expected_gradients)):
        assert torch.equal(one, other)


def test_errors_name_what_is_wrong():
    x = torch.ones(3, 7)
    with pytest.raises(ValueError, match="eps is 0"):
        tct.rmsnorm(x, None, 0.0)
    with pytest.raises(ValueError, match="kind is 'swish'"):
        tct.activation(x, "swish")
    with pytest.raises(ValueError, match="approximate is 'fast'"):
        tct.gelu(x, "fast")
    with pytest.raises(ValueError, match="target"):
        tct.cross_entropy(x, torch.tensor([0, 7, 1]))
    with pytest.raises(TypeError, match="target"):
        tct.cross_entropy(x, torch.zeros(3))


@on_every_device
def test_a_loss_leaves_its_logits_alone(device):
    """Liger#272: whoever else saved the logits still finds them, and a second loss on them is right."""
    serve(device, "cross_entropy")
    x = randn(device, 3, 9, grad=True)
    target = TARGET[1].to(device)
    z = x * 1.5
    before = z.detach().clone()
    loss = tct.cross_entropy(z, target) + z.softmax(-1).pow(2).sum() + tct.cross_entropy(z, target)
    assert torch.equal(z, before)
    wide = x.detach().double().requires_grad_()
    exact = 2 * F.cross_entropy(wide * 1.5, target) + (wide * 1.5).softmax(-1).pow(2).sum()
    assert error(torch.autograd.grad(loss, x)[0], torch.autograd.grad(exact, wide)[0]) < 3e-6


@on_every_device
def test_attention_on_a_packed_projection(device):
    """candle#3004: q, k and v are views of one tensor, and so is the gradient's storage."""
    serve(device, "attention")
    packed = randn(device, 2, 5, 8 * 8, grad=True)

    def split(t):
        q, k, v = t.split((4 * 8, 2 * 8, 2 * 8), -1)
        return [part.unflatten(-1, (-1, 8)).transpose(1, 2) for part in (q, k, v)]

    found = tct.attention(*split(packed), causal=True)
    wide = packed.detach().double().requires_grad_()
    exact = plain_attention(*split(wide))
    seed = torch.ones((), device=device)
    assert error(found, exact) < 3e-6
    gradient = torch.autograd.grad(found, packed, seed.expand(found.shape))[0]
    assert error(gradient, torch.autograd.grad(exact, wide, seed.double().expand(exact.shape))[0]) < 3e-6

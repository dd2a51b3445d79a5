"""traincore.torch: values and gradients against float64 torch and against the definitions, gradcheck, autocast, strides."""

import numpy as np
import pytest
from torch_cases import CASES, TARGET, F, as_tuple, every_case, inputs, outputs_and_gradients, plain_attention, serve
from torch_support import error, needs, on_every_device, randn, torch

import traincore.torch as tct


def in_pairs(device, name, dtype, definition):
    """Every output and gradient of ours beside that of a definition, which has the same inputs in float64."""
    op, shapes, ours, _ = CASES[name]
    serve(device, op)
    given = inputs(shapes, device, dtype)
    found, gradients = outputs_and_gradients(ours, given)
    exact, exact_gradients = outputs_and_gradients(definition, [t.detach().double().requires_grad_() for t in given])
    return zip((*found, *gradients), (*exact, *exact_gradients), strict=True)


@on_every_device
@every_case
def test_f32_against_float64(device, name):
    for one, other in in_pairs(device, name, torch.float32, CASES[name][3]):
        assert error(one, other) < 3e-6


@every_case
def test_f32_against_the_definition(name):
    """The kernels' gradients beside those of the definitions, which gradcheck holds."""
    for one, other in in_pairs("cpu", name, torch.float32, CASES[name][2]):
        assert one.dtype is torch.float32 and other.dtype is torch.float64 and error(one, other) < 3e-6


@on_every_device
@every_case
def test_bf16_against_float64(device, name):
    for one, other in in_pairs(device, name, torch.bfloat16, CASES[name][3]):
        assert one.dtype in (torch.bfloat16, torch.float32) and error(one, other) < 2e-2


@every_case
def test_gradcheck_of_the_definition(name):
    op, shapes, ours, _ = CASES[name]
    needs("cpu", f"{op}_forward")
    assert torch.autograd.gradcheck(ours, inputs(shapes, "cpu", torch.float64))


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
def test_without_gradient_the_bits_are_the_same(device, name):
    """Though nothing is saved for a backward pass."""
    op, shapes, ours, _ = CASES[name]
    serve(device, op)
    given = inputs(shapes, device, torch.float32)
    with torch.no_grad():
        found = as_tuple(ours(*given))
    for one, other in zip(found, as_tuple(ours(*given)), strict=True):
        assert torch.equal(one, other) and other.requires_grad and not one.requires_grad


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


def test_forward_mode_is_refused():
    """Not answered with a derivative of 0, which is what autograd makes of a custom op."""
    x = randn("cpu", 3, 7)
    with pytest.raises(RuntimeError, match="forward-mode derivatives are not served"):
        torch.func.jvp(tct.silu, (x,), (x,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode"):
        tct.softmax(torch.autograd.forward_ad.make_dual(x, x))


def test_rope_keeps_its_inputs_for_learned_tables_only():
    q, table = randn("cpu", 1, 2, 5, 8, grad=True), randn("cpu", 5, 4)
    for learned in (False, True):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.shape) or t, lambda t: t):
            tct.rope(q, None, table.clone().requires_grad_(learned), table)[0].sum().backward()
        assert (q.shape in kept) == learned


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


@on_every_device
def test_add_rmsnorm_rounds_as_two_modules_do(device):
    serve(device, "rmsnorm")
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


@on_every_device
def test_rows_with_nothing_in_them(device):
    """PT#116349, PT#110213: an ignored row, a row of -inf and a query without a key give 0, and so do their gradients."""
    serve(device, "attention")
    x = randn(device, 3, 7)
    x[1] = -torch.inf
    x.requires_grad_()
    p = tct.softmax(x)
    (p * randn(device, 3, 7, seed=1)).sum().backward()
    assert not p[1].any() and not x.grad[1].any() and x.grad[[0, 2]].all()
    logits = randn(device, 3, 7, grad=True)
    loss = tct.cross_entropy(logits, torch.full((3,), -100, device=device), z_loss=0.1, label_smoothing=0.1)
    loss.backward()
    assert loss == 0 and not logits.grad.any()
    blind = torch.zeros(5, 7, device=device)
    blind[2] = -torch.inf
    for hidden in ({"mask": blind == 0}, {"bias": blind}):
        q, k, v = (randn(device, 1, 2, n, 8, seed=n, grad=True) for n in (5, 7, 7))
        o = tct.attention(q, k, v, **hidden)
        o.sum().backward()
        assert not o[:, :, 2].any() and not q.grad[:, :, 2].any() and o[:, :, 3].all()
        assert all(torch.isfinite(t.grad).all() for t in (q, k, v))


@on_every_device
def test_targets_of_any_stride(device):
    """PT#71550: an expanded target, and a column."""
    serve(device, "cross_entropy")
    logits = randn(device, 8, 5, grad=True)
    for target in (torch.tensor([3], device=device).expand(8), torch.arange(16, device=device).reshape(8, 2)[:, 1] % 5):
        found, dense = (tct.cross_entropy(logits, t) for t in (target, target.contiguous()))
        assert torch.equal(found, dense)
        assert torch.equal(*(torch.autograd.grad(loss, logits)[0] for loss in (found, dense)))


@on_every_device
def test_a_vector_is_one_row(device):
    """FA#781: the weight's gradient of a plain vector was whatever lay in memory."""
    serve(device, "rmsnorm")
    for _ in range(20):
        x, w = torch.zeros(4, device=device), randn(device, 4, grad=True)
        tct.rmsnorm(x, w).sum().backward()
        assert not w.grad.any()


def test_errors_name_what_is_wrong():
    x = torch.ones(3, 7)
    for call, named in (
        (lambda: tct.rmsnorm([1.0], None), "rmsnorm: x is a list"), (lambda: tct.rmsnorm(x, 2.0), "rmsnorm: weight is a float"),
        (lambda: tct.layernorm(None), "layernorm: x is a NoneType"), (lambda: tct.softmax(x.numpy()), "softmax: x is a ndarray"),
        (lambda: tct.attention(x, x, 3), "attention: v is a int"), (lambda: tct.rope(x, x, x, None), "rope: sin is a NoneType"),
        (lambda: tct.cross_entropy(x, [0, 1, 2]), "cross_entropy: target is a list"),
        (lambda: tct.silu(torch.ones(3, dtype=torch.complex64)), "complex64"), (lambda: tct.silu(torch.ones(3).int()), "gate has dtype i32"),
        (lambda: tct.softmax(x.to_sparse()), "sparse"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=named):
            call()
    for call, named in (
        (lambda: tct.rmsnorm(x, torch.ones(6)), r"rmsnorm: x has shape \[3, 7\], expected \[..., 6\]"),
        (lambda: tct.layernorm(x, torch.ones(2, 7)), r"layernorm: x has shape \[3, 7\], expected \[..., 2, 7\]"),
        (lambda: tct.layernorm(x, torch.ones(7), torch.ones(6)), "bias has"),
        (lambda: tct.softmax(torch.ones(())), "x has rank 0"), (lambda: tct.attention(x, x, x), "q has rank 2"),
        (lambda: tct.cross_entropy(x, torch.tensor([0, 1])), "target has rows = 2"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=named):
            call()
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


def test_scalars_of_a_wrong_type_are_named():
    x, target = torch.ones(3, 7), torch.tensor([0, 1, 2])
    for function, arguments, named in (
        (tct.rmsnorm, (x, None, "a"), "rmsnorm: eps is a str, expected float"),
        (tct.rmsnorm, (x, None, 1e-6, 3), "rmsnorm: rounding is a int, expected str"),
        (tct.add_rmsnorm, (x, x, None, None), "add_rmsnorm: eps is a NoneType, expected float"),
        (tct.layernorm, (x, None, None, [1e-5]), "layernorm: eps is a list, expected float"),
        (tct.rope, (x, None, x, x, None, 1), "rope: pairing is a int, expected str"),
        (tct.activation, (x, 3), "activation: kind is a int, expected str"),
        (tct.geglu, (x, x, None), "geglu: approximate is a NoneType, expected str"),
    ):
        with pytest.raises(TypeError, match=named):
            function(*arguments)
    for options, named in (({"scale": "1"}, "scale is a str"), ({"causal": "no"}, "causal is a str"), ({"seed": 0.5}, "seed is a float")):
        with pytest.raises(TypeError, match=f"attention: {named}, expected"):
            tct.attention(*[torch.ones(1, 1, 2, 4)] * 3, **options)
    with pytest.raises(TypeError, match="cross_entropy: ignore_index is a float, expected int"):
        tct.cross_entropy(x, target, ignore_index=0.5)
    for eps in (1, np.float32(1e-6), torch.tensor(1e-6), True):  # numbers all the same
        tct.rmsnorm(x, None, eps)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
        tct.rmsnorm(x)


def test_everything_is_documented():
    for name in tct.__all__:
        thing = getattr(tct, name)
        assert thing.__doc__ and thing.__module__.startswith("traincore.torch"), name


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


def test_results_may_be_changed_in_place():
    x, y = (torch.randn(3, 5, requires_grad=True) for _ in range(2))
    for shape in ((3, 5), ()):
        a, b = (t.detach()[tuple(0 for _ in range(2 - len(shape)))].clone().requires_grad_() for t in (x, y))
        tct.swiglu(a, b).mul_(2).sum().backward()
        expected = torch.autograd.grad((2 * F.silu(a) * b).sum(), (a, b))
        torch.testing.assert_close((a.grad, b.grad), expected)


def test_tensors_that_kernels_cannot_read_as_they_stand():
    z = torch.randn(3, 5, dtype=torch.complex64)
    negative = torch.imag(z.conj())
    assert negative.is_neg()
    torch.testing.assert_close(tct.silu(negative), F.silu(negative.clone()))
    x = torch.randn(3, 5, requires_grad=True)
    tct.silu(x).backward(negative)
    torch.testing.assert_close(x.grad, torch.autograd.grad(F.silu(x), x, negative.clone())[0])
    assert tct.silu(torch.empty(3, 5, device="meta")).device.type == "meta"


def test_traces_call_the_operator():
    x, other = torch.randn(3, 8), torch.randn(3, 8)
    traced = torch.jit.trace(lambda t: tct.rmsnorm(t, None), x, check_trace=False)
    assert torch.equal(traced(other), tct.rmsnorm(other, None))

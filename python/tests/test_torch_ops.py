"""traincore.ops on torch tensors: read and written in place, outputs made by torch."""

import gc
import importlib.util

import pytest
from torch_support import error, needs, on_every_device, randn, torch

import traincore as tc


@on_every_device
def test_tensors_go_in_and_come_out(device):
    needs(device, "rmsnorm_forward", "rmsnorm_backward")
    x, w = randn(device, 5, 33), randn(device, 33)
    found = tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6)
    assert found.y.device == x.device and found.y.dtype == x.dtype and found.rstd.shape == (5,)
    exact = torch.nn.functional.rms_norm(x.double(), (33,), w.double(), 1e-6)
    assert error(found.y, exact) < 1e-6
    grads = tc.ops.rmsnorm_backward(dy=x, x=x, weight=w, rstd=found.rstd, dx=True, dweight=True)
    assert grads.dx.device == x.device and grads.dweight.shape == (33,)


@on_every_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(device, dtype):
    needs(device, "rmsnorm_forward")
    x = randn(device, 4, 65, dtype=dtype)
    found = tc.ops.rmsnorm_forward(x=x, weight=randn(device, 65), eps=1e-6)
    assert found.y.dtype == dtype and found.rstd.dtype == torch.float32
    assert error(found.y, torch.nn.functional.rms_norm(x.double(), (65,), randn(device, 65).double(), 1e-6)) < 1e-2


@on_every_device
def test_views_are_read_and_written_in_place(device):
    needs(device, "rmsnorm_forward")
    wide = randn(device, 6, 40)
    room = torch.zeros(3, 50, device=device)
    found = tc.ops.rmsnorm_forward(x=wide[::2, 3:20], eps=1e-6, y=room[:, 10:27], rstd=False)
    assert found.y.data_ptr() == room[:, 10:27].data_ptr()
    exact = tc.ops.rmsnorm_forward(x=wide[::2, 3:20].contiguous(), eps=1e-6).y
    assert torch.equal(room[:, 10:27], exact) and not room[:, :10].any() and not room[:, 27:].any()


def test_parameters_and_graph_tensors_are_read():
    x = torch.nn.Parameter(randn("cpu", 3, 7))
    assert torch.equal(tc.ops.softmax_forward(x=x).y, tc.ops.softmax_forward(x=x.detach()).y)
    assert torch.equal(tc.ops.softmax_forward(x=x * 1).y, tc.ops.softmax_forward(x=x.detach()).y)


@on_every_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pairs_on_tensors(device, dtype):
    """Kept by reference, whatever their strides; what comes back is a Buffer that NumPy reads."""
    needs(device, "rmsnorm_forward", "rmsnorm_backward")
    wide, w, dy = randn(device, 7, 3, dtype=dtype), randn(device, 7), randn(device, 3, 7)
    for x in (wide.t(), wide.t().contiguous().requires_grad_()):
        output, saved = tc.norms.rms_norm_forward(x, w, epsilon=1e-6)
        gradients = tc.norms.norm_backward(saved, dy)
        exact = x.detach().double().requires_grad_()
        y = torch.nn.functional.rms_norm(exact, (7,), w.double(), 1e-6)
        assert (saved.source is x) == x.is_contiguous() and isinstance(output, tc.Buffer)
        assert output.shape == (3, 7) and gradients.source.shape == (3, 7)
        if device == "cpu" and (dtype is torch.float32 or importlib.util.find_spec("ml_dtypes")):
            found = torch.from_numpy(output.numpy().astype("f4"))
            assert error(found, y) < (1e-6 if dtype is torch.float32 else 1e-2)
        found = torch.from_dlpack(gradients.source)
        assert found.dtype is torch.float32 and error(found, torch.autograd.grad(y, exact, dy.double())[0]) < 1e-6


def test_a_buffer_keeps_a_tensors_memory():
    tensor = torch.zeros(2, 3)
    view = tc.Buffer.wrap(tensor).numpy()
    view[1, 2] = 5
    assert tensor[1, 2] == 5
    del tensor
    gc.collect()
    assert view.sum() == 5


@pytest.mark.parametrize(
    "kind, sentence, make",
    [
        (TypeError, "x: it is on device meta", lambda: torch.empty(3, 7, device="meta")),
        (TypeError, "x: .*sparse", lambda: torch.eye(3).to_sparse()),
        (TypeError, "type code 5", lambda: torch.ones(3, 7, dtype=torch.complex64)),
        (TypeError, "x has dtype f64", lambda: torch.ones(3, 7, dtype=torch.float64)),
        (ValueError, "last dimension", lambda: torch.ones(7, 3).t()),
    ],
)
def test_refusals(kind, sentence, make):
    with pytest.raises(kind, match=sentence):
        tc.ops.softmax_forward(x=make(), y=torch.empty(3, 7))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_current_stream_is_used():
    needs("cuda", "rmsnorm_forward")
    x = randn("cuda", 4096, 4096)
    expected = tc.ops.rmsnorm_forward(x=x + 1, eps=1e-6).y
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        moved = x + 1
        found = tc.ops.rmsnorm_forward(x=moved, eps=1e-6).y
    stream.synchronize()
    assert torch.equal(found, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_mixed_devices_are_refused():
    with pytest.raises(ValueError, match="another device"):
        tc.ops.rmsnorm_forward(x=randn("cuda", 3, 7), weight=randn("cpu", 7), eps=1e-6)


def kinds():
    """Calls of RMSNorm that differ in one respect each: what is given, shapes, strides, dtypes, scalars."""
    wide, w = randn("cpu", 6, 40), randn("cpu", 20)
    for x in (wide[:, :20], wide[:, ::2].contiguous(), wide[::2, :20], wide[:5, :20], wide[:, :20].bfloat16()):
        for more in ({}, {"weight": w}, {"weight": torch.nn.Parameter(w)}, {"residual": x.clone()}):
            yield {"x": x, "eps": 1e-6, **more}
            yield {"x": x, "eps": 0.5, "rstd": False, **more}
            yield {"x": x, "eps": 0.5, "residual_out": "residual" in more, "y": torch.empty_like(x), **more}


def test_calls_of_a_kind_seen_before():
    """All again, on other memory: the same answers as the first time, which are those of NumPy's arrays."""

    def moved(value):
        return value.detach().clone(memory_format=torch.preserve_format) if isinstance(value, torch.Tensor) else value

    def numpy(value):
        return value.detach().float().numpy() if isinstance(value, torch.Tensor) else value

    first = [tc.ops.rmsnorm_forward(**keywords) for keywords in kinds()]
    again = [tc.ops.rmsnorm_forward(**{k: moved(v) for k, v in keywords.items()}) for keywords in kinds()]
    for keywords, one, other in zip(kinds(), first, again, strict=True):
        exact = tc.ops.rmsnorm_forward(**{k: numpy(v) for k, v in keywords.items()})
        for a, b, c in zip(one, other, exact, strict=True):
            assert (a is None) == (b is None) == (c is None)
            if a is not None:
                assert torch.equal(a, b) and a.dtype == b.dtype and a.data_ptr() != b.data_ptr()
                assert error(a, torch.from_numpy(c)) < (1e-2 if a.dtype is torch.bfloat16 else 1e-6)


def test_shapes_follow_scalars_each_time():
    logits, target = randn("cpu", 4, 9), torch.arange(4)
    for _ in range(2):
        for reduction, shape in (("none", (4,)), ("mean", ())):
            assert tc.ops.cross_entropy_forward(logits=logits, target=target, reduction=reduction).loss.shape == shape


def test_refusals_of_a_kind_seen_before():
    x = randn("cpu", 3, 7)
    for _ in range(3):
        with pytest.raises(ValueError, match=r"rstd .*overlap"):
            tc.ops.rmsnorm_forward(x=x, eps=1e-6, rstd=x[:, 0])
        with pytest.raises(ValueError, match="weight"):
            tc.ops.rmsnorm_forward(x=x, weight=randn("cpu", 6), eps=1e-6)
        with pytest.raises(TypeError, match="eps"):
            tc.ops.rmsnorm_forward(x=x, eps="small")
        with pytest.raises(TypeError, match=r"x: .*resolve_neg"):
            tc.ops.rmsnorm_forward(x=torch._neg_view(x), eps=1e-6)
        with pytest.raises(TypeError, match=r"x: .*sparse"):
            tc.ops.rmsnorm_forward(x=torch.eye(3).to_sparse(), eps=1e-6)
        with pytest.raises(TypeError, match="x: it is on device meta"):
            tc.ops.rmsnorm_forward(x=torch.empty(3, 7, device="meta"), eps=1e-6)
        assert tc.ops.rmsnorm_forward(x=x, eps=1e-6).y.shape == x.shape

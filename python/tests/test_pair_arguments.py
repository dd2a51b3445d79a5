"""What the explicit pairs take: kinds of input, saved contexts, defaults, and what they refuse."""

import dataclasses

import numpy as np
import pytest
from dlpack_only import OnlyDLPack

import traincore as tc
from traincore.attention import attention_forward
from traincore.losses import cross_entropy_backward, cross_entropy_forward, softmax_backward
from traincore.matmul import matmul_forward
from traincore.norms import add_rms_norm_forward, layer_norm_forward, norm_backward, rms_norm_forward
from traincore.pointwise import activation_forward, rope_forward


def test_numpy_buffer_and_dlpack_mix(rng):
    source, weight = rng.standard_normal((3, 7), np.float32), rng.standard_normal((7,), np.float32)
    expected, _ = rms_norm_forward(source, weight)
    output, saved = rms_norm_forward(tc.Buffer.from_numpy(source), OnlyDLPack(weight))
    np.testing.assert_array_equal(output.numpy(), expected.numpy())
    assert norm_backward(saved, source).weight.shape == (7,)


def test_numpy_is_copied_and_never_written(rng):
    source, weight = rng.standard_normal((3, 14), np.float32)[:, ::2], rng.standard_normal((7,), np.float32)
    before = source.copy()
    output, saved = rms_norm_forward(source, weight)
    first = norm_backward(saved, before).source.numpy().copy()
    source[...] = 9
    np.testing.assert_array_equal(norm_backward(saved, before).source.numpy(), first)
    output.numpy()[...] = 0
    np.testing.assert_array_equal(norm_backward(saved, before).source.numpy(), first)


def test_contexts_are_frozen(rng):
    _, saved = rms_norm_forward(rng.standard_normal((3, 7), np.float32), rng.standard_normal((7,), np.float32))
    with pytest.raises(dataclasses.FrozenInstanceError):
        saved.rstd = None


def refusals():
    x, w, t = np.ones((3, 7), np.float32), np.ones(7, np.float32), np.zeros(3, np.int64)
    q = np.ones((1, 2, 3, 4), np.float32)
    norm, loss = rms_norm_forward(x, w)[1], cross_entropy_forward(x, t)[1]
    return [
        (TypeError, "source", lambda: rms_norm_forward([1.0], w)),
        (TypeError, "source has dtype f64", lambda: rms_norm_forward(x.astype(np.float64), w)),
        (TypeError, "weight has dtype i64", lambda: rms_norm_forward(x, np.ones(7, np.int64))),
        (ValueError, "weight has shape", lambda: rms_norm_forward(x, np.ones(6, np.float32))),
        (ValueError, "weight has shape", lambda: rms_norm_forward(x, np.ones((), np.float32))),
        (
            ValueError,
            "at least one element",
            lambda: rms_norm_forward(np.ones((3, 0), np.float32), np.ones(0, np.float32)),
        ),
        (TypeError, "epsilon", lambda: rms_norm_forward(x, w, epsilon="1e-5")),
        (TypeError, "epsilon", lambda: rms_norm_forward(x, w, epsilon=True)),
        (ValueError, "epsilon", lambda: rms_norm_forward(x, w, epsilon=0)),
        (ValueError, "epsilon", lambda: rms_norm_forward(x, w, epsilon=float("nan"))),
        (ValueError, "epsilon", lambda: rms_norm_forward(x, w, epsilon=1e-60)),
        (ValueError, "epsilon", lambda: rms_norm_forward(x, w, epsilon=1e60)),
        (TypeError, "saved", lambda: norm_backward(None, x)),
        (ValueError, "output_gradient has shape", lambda: norm_backward(norm, x[:2])),
        (ValueError, "residual_output_gradient is given", lambda: norm_backward(norm, x, residual_output_gradient=x)),
        (ValueError, "residual has shape", lambda: add_rms_norm_forward(x, x[:2], w)),
        (ValueError, "bias has shape", lambda: layer_norm_forward(x, w, w[:3])),
        (ValueError, "gelu_tanh", lambda: activation_forward(x, kind="gelu")),
        (ValueError, "kind is 'swish'", lambda: activation_forward(x, kind="swish")),
        (TypeError, "kind is None", lambda: activation_forward(x, kind=None)),
        (ValueError, "up has shape", lambda: activation_forward(x, up=x[:2])),
        (ValueError, "values has shape", lambda: rope_forward(w, x, x)),
        (ValueError, "cosine has shape", lambda: rope_forward(x, x[:2], x[:2])),
        (ValueError, "sine has shape", lambda: rope_forward(x, x[:, :2], x[:, :3])),
        (ValueError, "rotary_dim is 2", lambda: rope_forward(x, x[:, :2], x[:, :2], rotary_dim=2)),
        (ValueError, "turn 8 of 7", lambda: rope_forward(x, x[:, :4], x[:, :4])),
        (TypeError, "interleaved", lambda: rope_forward(x, x[:, :2], x[:, :2], interleaved=1)),
        (TypeError, "target has dtype f32", lambda: cross_entropy_forward(x, w)),
        (ValueError, "target has shape", lambda: cross_entropy_forward(x, t[:2])),
        (ValueError, r"target\[1\] is 7", lambda: cross_entropy_forward(x, np.array([0, 7, 0]))),
        (ValueError, "reduction is 'avg'", lambda: cross_entropy_forward(x, t, reduction="avg")),
        (ValueError, "label_smoothing", lambda: cross_entropy_forward(x, t, label_smoothing=1.5)),
        (ValueError, "z_loss", lambda: cross_entropy_forward(x, t, z_loss=-1)),
        (TypeError, "ignore_index", lambda: cross_entropy_forward(x, t, ignore_index=0.5)),
        (ValueError, "cotangent has shape", lambda: cross_entropy_backward(loss, x)),
        (ValueError, "classes > 0", lambda: cross_entropy_forward(np.ones((3, 0), np.float32), t)),
        (ValueError, "output_gradient has shape", lambda: softmax_backward(x, w)),
        (ValueError, "right has shape", lambda: matmul_forward(x, x)),
        (ValueError, "left has shape", lambda: matmul_forward(w, x)),
        (ValueError, "activation is 'gelu'", lambda: matmul_forward(x, x.T.copy(), activation="gelu")),
        (TypeError, "max_workspace_bytes", lambda: matmul_forward(x, x.T.copy(), max_workspace_bytes="1M")),
        (ValueError, "query has shape", lambda: attention_forward(x, q, q)),
        (ValueError, "key has 2 heads", lambda: attention_forward(q[:, :1], q, q)),
        (ValueError, "value has shape", lambda: attention_forward(q, q, q[:, :, :2])),
        (ValueError, "scale", lambda: attention_forward(q, q, q, scale=-1.0)),
        (TypeError, "causal", lambda: attention_forward(q, q, q, causal="yes")),
        (ValueError, "causal_offset is given", lambda: attention_forward(q, q, q, causal_offset=1)),
        (TypeError, "mask has dtype f32", lambda: attention_forward(q, q, q, mask=x)),
        (ValueError, "mask has shape", lambda: attention_forward(q, q, q, mask=np.ones((2, 3), bool))),
    ]


@pytest.mark.parametrize("module", [tc.norms, tc.pointwise, tc.losses, tc.matmul, tc.attention])
def test_everything_is_documented(module):
    public = [v for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__ and n[0] != "_"]
    assert module.__doc__ and len(public) >= 3
    assert all(thing.__doc__ for thing in public)


@pytest.mark.parametrize("index", range(len(refusals())))
def test_refusals_name_the_argument_and_launch_nothing(index):
    kind, sentence, call = refusals()[index]
    tc.calls.reset()
    with pytest.raises(kind, match=sentence):
        call()
    assert tc.calls.counts() == {}


def test_default_device(rng, monkeypatch):
    monkeypatch.setenv("TRAINCORE_DEVICE", "moon")
    with pytest.raises(ValueError, match="device is 'moon'"):
        rms_norm_forward(rng.standard_normal((3, 7), np.float32), rng.standard_normal((7,), np.float32))

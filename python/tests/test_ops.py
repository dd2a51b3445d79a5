"""traincore.ops on NumPy arrays: values, outputs made and given, what is read in place, and every kind of refusal."""

import ast
import inspect

import numpy as np
import pytest
from dlpack_only import OnlyDLPack

import traincore as tc


def arrays(rng, rows=3, cols=7):
    return rng.standard_normal((rows, cols), np.float32), rng.standard_normal(cols, np.float32)


def test_rmsnorm_published_values():
    x, w = np.array([[3, 4]], np.float32), np.array([2, 0.5], np.float32)
    found = tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6)
    np.testing.assert_allclose(found.y, [[1.697056, 0.565685]], rtol=1e-6)
    np.testing.assert_allclose(found.rstd, [0.282843], rtol=1e-5)
    assert found.residual_out is None
    dy = np.array([[1, 2]], np.float32)
    back = tc.ops.rmsnorm_backward(dy=dy, x=x, rstd=found.rstd, dx=True)
    np.testing.assert_allclose(back.dx, [[-0.090510, 0.067882]], atol=1e-6)
    assert back.dweight is None


def test_forward_and_backward_agree_with_float64(rng):
    x, w = arrays(rng, 5, 33)
    dy = rng.standard_normal(x.shape, np.float32)
    found = tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-5)
    grads = tc.ops.rmsnorm_backward(dy=dy, x=x, weight=w, rstd=found.rstd, dx=True, dweight=True)
    exact = tc.reference.rmsnorm_forward(x=x, weight=w, eps=1e-5)
    exact_grads = tc.reference.rmsnorm_backward(dy=dy, x=x, weight=w, rstd=exact.rstd, dx=True, dweight=True)
    for one, other in ((found.y, exact.y), (grads.dx, exact_grads.dx), (grads.dweight, exact_grads.dweight)):
        assert one.dtype == np.float32 and other.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_strided_views_are_read_in_place(rng):
    wide = rng.standard_normal((6, 20), np.float32)
    view = wide[::2, 3:10]
    found = tc.ops.softmax_forward(x=view).y
    np.testing.assert_array_equal(found, tc.ops.softmax_forward(x=view.copy()).y)
    reverse = wide[::-1, 3:10]
    np.testing.assert_array_equal(tc.ops.softmax_forward(x=reverse).y, tc.ops.softmax_forward(x=reverse.copy()).y)


def test_outputs_may_be_views_and_only_they_are_written(rng):
    x, _ = arrays(rng)
    room = np.full((3, 12), 9, np.float32)
    y = room[:, 2:9]
    assert tc.ops.softmax_forward(x=x, out=y).y is y
    np.testing.assert_array_equal(y, tc.ops.softmax_forward(x=x).y)
    assert (room[:, :2] == 9).all() and (room[:, 9:] == 9).all()


def test_out_by_name_by_keyword_and_as_first_output(rng):
    x, w = arrays(rng)
    y, rstd = np.empty_like(x), np.empty(3, np.float32)
    found = tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6, out={"y": y, "rstd": rstd, "residual_out": True})
    assert found.y is y and found.rstd is rstd and found.residual_out.shape == x.shape
    assert tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6, y=y, rstd=False).rstd is None
    with pytest.raises(TypeError, match="y is given twice"):
        tc.ops.rmsnorm_forward(x=x, eps=1e-6, y=y, out=y)
    with pytest.raises(TypeError, match="out names 'z'"):
        tc.ops.rmsnorm_forward(x=x, eps=1e-6, out={"z": y})


def test_in_place(rng):
    x, _ = arrays(rng)
    expected = tc.ops.softmax_forward(x=x).y
    assert tc.ops.softmax_forward(x=x, out=x).y is x
    np.testing.assert_array_equal(x, expected)


def test_read_only_inputs_are_read_and_never_written(rng):
    x, _ = arrays(rng)
    x.setflags(write=False)
    assert tc.ops.softmax_forward(x=x).y.shape == x.shape
    with pytest.raises(ValueError, match="softmax_forward: y: it is read-only"):
        tc.ops.softmax_forward(x=x.copy(), y=x)


def test_dtypes_of_outputs(rng):
    x = rng.standard_normal((3, 7)).astype(np.float16)
    w = rng.standard_normal(7, np.float32)
    found = tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-3)
    assert found.y.dtype == np.float16 and found.rstd.dtype == np.float32
    grads = tc.ops.rmsnorm_backward(dy=x, x=x, weight=w, rstd=found.rstd, dx=True, dweight="f16")
    assert grads.dx.dtype == np.float16 and grads.dweight.dtype == np.float16
    assert tc.ops.cast(x=x, y=np.float32).y.dtype == np.float32
    assert tc.ops.gemm_forward(a=x, b=w.reshape(7, 1)).c.dtype == np.float32
    assert (
        tc.ops.cross_entropy_forward(logits=w, target=np.array(3), reduction="sum", valid_count=True).valid_count == 1
    )


def test_bf16_through_ml_dtypes(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = rng.standard_normal((3, 7)).astype(ml_dtypes.bfloat16)
    y = tc.ops.softmax_forward(x=x).y
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(y.astype(np.float32).sum(-1), 1, atol=0.02)


def test_buffers_go_in_and_come_out(rng):
    x, w = arrays(rng)
    found = tc.ops.rmsnorm_forward(x=tc.Buffer.from_numpy(x), weight=w, eps=1e-6)
    assert isinstance(found.y, tc.Buffer) and isinstance(found.rstd, tc.Buffer)
    np.testing.assert_array_equal(found.y.numpy(), tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6).y)


def test_empty_rows(rng):
    x = np.empty((0, 7), np.float32)
    found = tc.ops.rmsnorm_forward(x=x, weight=np.ones(7, np.float32), eps=1e-6)
    assert found.y.shape == (0, 7) and found.rstd.shape == (0,)
    grads = tc.ops.rmsnorm_backward(dy=x, x=x, weight=np.ones(7, np.float32), rstd=found.rstd, dweight=True)
    np.testing.assert_array_equal(grads.dweight, np.zeros(7, np.float32))


def test_lists_are_updated_in_place(rng):
    params = [rng.standard_normal((3, 5), np.float32), rng.standard_normal(7, np.float32)]
    grads = [np.ones_like(p) for p in params]
    m, v = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    before = [p.copy() for p in params]
    found = tc.ops.adamw(params=params, grads=grads, m=m, v=v, lr=0.1, step=1, copy_out="f16")
    for p, old, copy in zip(params, before, found.copy_out):
        np.testing.assert_allclose(p, old - 0.1, atol=1e-5)
        assert copy.dtype == np.float16 and copy.shape == p.shape
    with pytest.raises(ValueError, match=r"grads has 1 tensors, but params has 2"):
        tc.ops.adamw(params=params, grads=grads[:1], m=m, v=v, lr=0.1, step=1)
    with pytest.raises(TypeError, match=r"adamw: m is a ndarray, expected a list"):
        tc.ops.adamw(params=params, grads=grads, m=m[0], v=v, lr=0.1, step=1)


class OnlyInterface:
    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize("wrap, made", [(OnlyDLPack, tc.Buffer), (OnlyInterface, np.ndarray)])
def test_other_protocols(rng, wrap, made):
    x, _ = arrays(rng)
    found = tc.ops.softmax_forward(x=wrap(x)).y
    assert isinstance(found, made)
    np.testing.assert_array_equal(np.asarray(found), tc.ops.softmax_forward(x=x).y)
    y = np.empty_like(x)
    tc.ops.softmax_forward(x=x, y=wrap(y))
    np.testing.assert_array_equal(y, np.asarray(found))


class FakeCuda:
    __cuda_array_interface__ = {"shape": (3, 7), "typestr": "<f4", "data": (1 << 20, False), "version": 3}


def test_gpu_memory_is_never_touched_by_the_cpu():
    if "cuda" in tc.ops.PASSES["softmax_forward"].devices:
        pytest.skip("a build with GPU kernels would take the made-up address for real")
    with pytest.raises((tc.Error, ValueError, TypeError)):
        tc.ops.softmax_forward(x=FakeCuda(), y=FakeCuda())
    with pytest.raises(TypeError, match="cannot be made here"):
        tc.ops.softmax_forward(x=FakeCuda())
    with pytest.raises(ValueError, match="another device"):
        tc.ops.softmax_forward(x=FakeCuda(), y=np.empty((3, 7), np.float32))


def refusals():
    x = np.ones((3, 7), np.float32)
    ops = tc.ops
    return [
        (TypeError, "x is a list", lambda: ops.softmax_forward(x=[1.0, 2.0])),
        (TypeError, "x is a NoneType|missing", lambda: ops.softmax_forward()),
        (TypeError, "unexpected keyword", lambda: ops.softmax_forward(x=x, axis=0)),
        (TypeError, "positional", lambda: ops.softmax_forward(x)),
        (ValueError, "x is missing", lambda: ops.softmax_forward(x=None, y=x)),
        (TypeError, "x has dtype f64", lambda: ops.softmax_forward(x=x.astype(np.float64))),
        (TypeError, "complex64", lambda: ops.softmax_forward(x=x.astype(np.complex64))),
        (TypeError, ">f4", lambda: ops.softmax_forward(x=x.astype(">f4"))),
        (TypeError, "masked", lambda: ops.softmax_forward(x=np.ma.masked_array(x))),
        (TypeError, "object", lambda: ops.softmax_forward(x=np.array([None, 1]))),
        (ValueError, "stride 2 in its last dimension", lambda: ops.softmax_forward(x=x[:, ::2])),
        (ValueError, "rank 0", lambda: ops.softmax_forward(x=np.float32(1), y=np.empty((), np.float32))),
        (
            ValueError,
            r"x has rank 0 \(shape \[\]\), expected \[rows... cols\]",
            lambda: ops.softmax_forward(x=np.float32(1)),
        ),
        (ValueError, r"attention_forward: q has rank 2", lambda: ops.attention_forward(q=x, k=x, v=x)),
        (ValueError, "x: .* 9 dimensions", lambda: ops.softmax_forward(x=np.ones((1,) * 9, np.float32))),
        (ValueError, "cols = 6", lambda: ops.softmax_forward(x=x, y=np.empty((3, 6), np.float32))),
        (ValueError, "overlaps x in part", lambda: ops.softmax_forward(x=x[:2], y=x[1:])),
        (ValueError, "eps is 0", lambda: ops.rmsnorm_forward(x=x)),
        (ValueError, "eps", lambda: ops.rmsnorm_forward(x=x, eps=float("nan"))),
        (TypeError, "eps is 'small'", lambda: ops.rmsnorm_forward(x=x, eps="small")),
        (TypeError, r"eps is array.*expected a number", lambda: ops.rmsnorm_forward(x=x, eps=x[0])),
        (
            TypeError,
            "accumulate is 0.5, expected True or False",
            lambda: ops.embedding_backward(dy=x, ids=np.array([0]), accumulate=0.5),
        ),
        (TypeError, "rounding is 1", lambda: ops.rmsnorm_forward(x=x, eps=1e-6, rounding=1)),
        (ValueError, "rounding is 'never'", lambda: ops.rmsnorm_forward(x=x, eps=1e-6, rounding="never")),
        (TypeError, "kind", lambda: ops.activation_forward(gate=x)),
        (ValueError, "no output is asked for", lambda: ops.rmsnorm_backward(dy=x, x=x, rstd=x[:, 0])),
        (ValueError, "y cannot be made", lambda: ops.fill(value=1.0)),
        (ValueError, "y cannot be made, since x is missing", lambda: ops.rmsnorm_forward(x=None, weight=x[0], eps=1e-6)),
        (TypeError, "'f33' is no dtype", lambda: ops.cast(x=x, y="f33")),
        (ValueError, "determinism is 'always'", lambda: ops.softmax_forward(x=x, determinism="always")),
        (ValueError, "threads is -1", lambda: ops.softmax_forward(x=x, threads=-1)),
        (
            tc.Unsupported,
            "TC_BATCH_INVARIANT",
            lambda: ops.gemm_forward(a=x, b=x.T.copy(), determinism="batch_invariant"),
        ),
        (
            ValueError,
            "seed is .*, expected an integer of 64 bits",
            lambda: ops.random(y=x, distribution="normal", seed=1 << 70),
        ),
        (
            ValueError,
            "target",
            lambda: ops.cross_entropy_forward(logits=x, target=np.array([0, 7, 1]), reduction="sum"),
        ),
    ]


@pytest.mark.parametrize("index", range(len(refusals())))
def test_refusals_name_the_argument_and_write_nothing(index):
    kind, sentence, call = refusals()[index]
    with pytest.raises(kind, match=sentence):
        call()


def test_flags_may_be_bools_of_numpy():
    dy, ids = np.ones((2, 3), np.float32), np.array([1, 1])
    for accumulate, want in ((np.True_, [1, 3]), (np.False_, [0, 2])):
        dweight = np.ones((2, 3), np.float32)
        tc.ops.embedding_backward(dy=dy, ids=ids, dweight=dweight, accumulate=accumulate)
        assert dweight[:, 0].tolist() == want


def test_a_refused_call_leaves_its_output_alone():
    x, y = np.ones((3, 7), np.float32), np.full((3, 7), 5, np.float32)
    with pytest.raises(ValueError):
        tc.ops.rmsnorm_forward(x=x, y=y, eps=-1.0)
    assert (y == 5).all()


def test_sentences_end_where_they_should():
    with pytest.raises(ValueError) as raised:
        tc.ops.rmsnorm_forward(x=np.ones((2, 3), np.float32), eps=0.0)
    assert str(raised.value) == "rmsnorm_forward: eps is 0, but must be > 0"


def test_signatures_and_documentation():
    signature = inspect.signature(tc.ops.rmsnorm_forward)
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in signature.parameters.values())
    assert signature.parameters["x"].default is inspect.Parameter.empty
    assert signature.parameters["rounding"].default == "once"
    assert signature.parameters["weight_offset"].default == 0.0
    assert inspect.signature(tc.ops.attention_forward).parameters["causal_offset"].default == -(2**63)
    for name, pass_ in tc.ops.PASSES.items():
        text = getattr(tc.ops, name).__doc__
        for field in (*pass_.inputs, *pass_.scalars, *pass_.outputs):
            assert f"    {field.name}: " in text, (name, field.name)
    text = tc.ops.rmsnorm_forward.__doc__
    for said in ("rstd = 1/sqrt", "[rows... cols]", "f16 bf16 f32", "saved for backward", "Raises TypeError"):
        assert said in text
    assert "Determinism run_to_run, batch_invariant, unordered; precision" in text


def test_stubs_are_current(root):
    from traincore import _stubs

    committed = (root / "python/traincore/ops.pyi").read_text()
    assert committed == _stubs.render(tc.ops.PASSES), "ops.pyi is not what the schema says: run scripts/python_stubs"


def test_stubs_are_what_runs(root):
    """Type checkers and editors see the names and defaults that a call has."""
    tree = ast.parse((root / "python/traincore/ops.pyi").read_text())
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert set(functions) == set(tc.ops.PASSES)
    for name, args in functions.items():
        assert not args.args and not args.vararg and not args.kwarg
        defaults = [inspect.Parameter.empty if d is None else ast.literal_eval(d) for d in args.kw_defaults]
        signature = inspect.signature(getattr(tc.ops, name))
        assert {a.arg: d for a, d in zip(args.kwonlyargs, defaults)} == {
            n: p.default for n, p in signature.parameters.items()
        }


def test_threads_run_at_once(rng):
    import threading

    x, w = arrays(rng, 64, 513)
    expected = tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6).y
    wrong = []

    def work():
        for _ in range(50):
            if not np.array_equal(tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6).y, expected):
                wrong.append(1)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_nothing_leaks(rng):
    """Arrays live no longer than their callers hold them."""
    import gc
    import weakref

    class Tracked(np.ndarray):
        pass

    x = rng.standard_normal((3, 7), np.float32).view(Tracked)
    plain = rng.standard_normal((3, 7), np.float32)
    watched = weakref.ref(x)
    y = tc.ops.softmax_forward(x=x).y
    tc.ops.softmax_forward(x=plain, out=y)
    del x
    gc.collect()
    assert watched() is None


def test_calls_are_counted(rng):
    x, w = arrays(rng)
    tc.calls.reset()
    for _ in range(3):
        tc.ops.rmsnorm_forward(x=x, weight=w, eps=1e-6)
    with pytest.raises(ValueError):
        tc.ops.rmsnorm_forward(x=x, weight=w, eps=0.0)
    assert tc.calls.counts() == {("rmsnorm", "rmsnorm_forward", "cpu"): 3}
    assert tc.calls.count("rmsnorm_forward") == 3 and tc.calls.count("rmsnorm_forward", "cuda") == 0
    tc.calls.reset()
    assert tc.calls.counts() == {}

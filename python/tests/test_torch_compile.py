"""The custom ops in torch.compile and in CUDA graphs, and as torch.library checks them."""

import pytest
from torch._dynamo.testing import CompileCounterWithBackend
from torch_cases import CASES, as_tuple, every_case, inputs, outputs_and_gradients, serve
from torch_support import error, on_every_device, randn, torch

import traincore.torch as tct


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


def block(x, w, b, projection, target):
    """Norm, attention, a gated activation and a loss, as in a decoder."""
    q, k, v = (tct.layernorm(x, w, b) @ projection).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4).unbind(0)
    h = x + tct.attention(q, k, v, causal=True).transpose(1, 2).flatten(-2)
    y, h = tct.add_rmsnorm(tct.swiglu(h, tct.rmsnorm(h, w)), h, w)
    return tct.cross_entropy(y, target)


def block_inputs(device, dtype, length=7):
    given = [
        randn(device, *s, dtype=dtype, seed=i, grad=True)
        for i, s in enumerate([(2, length, 32), (32,), (32,), (32, 96)])
    ]
    return given, torch.arange(2 * length, device=device).reshape(2, length) * 5 % 32


@on_every_device
def test_the_default_compiler_takes_a_whole_block(device):
    """Liger#871: a compiled norm that returned zeros."""
    serve(device, "attention")
    compiled = torch.compile(block, fullgraph=True)
    runs = []
    for function in (block, compiled):
        given, target = block_inputs(device, torch.bfloat16)
        loss = function(*given, target)
        runs.append((loss, *torch.autograd.grad(loss, given)))
    for one, other in zip(*runs):
        assert one.dtype == other.dtype and error(other, one) < 3e-2


@on_every_device
def test_one_graph_serves_every_length(device):
    serve(device, "attention")
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counter)
    compiled_graphs = []
    for length in (7, 12, 5):
        given, target = block_inputs(device, torch.float32, length)
        assert torch.equal(compiled(*given, target), block(*given, target))
        compiled_graphs.append(counter.frame_count)
    assert compiled_graphs[0] > 0 and len(set(compiled_graphs)) == 1


def calls_of(name):
    """What reaches the custom ops of a case: (op, arguments), forward and backward."""
    op, shapes, ours, _ = CASES[name]
    serve("cpu", op)
    seen = []

    def again(t):
        return t.detach().clone().requires_grad_(t.requires_grad)

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.namespace == "traincore":
                seen.append((function, tuple(again(a) if isinstance(a, torch.Tensor) else a for a in args)))
            return function(*args, **(kwargs or {}))

    with Watch():
        outputs_and_gradients(ours, inputs(shapes, "cpu", torch.float32))
    return seen


@pytest.mark.parametrize("name", CASES)
def test_eager_calls_have_the_bits_of_the_custom_ops(name):
    """The short way of eager mode beside the dispatcher's, which a mode that does nothing sends every call through."""
    op, shapes, ours, _ = CASES[name]
    serve("cpu", op)

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen += function.namespace == "traincore"
            return function(*args, **(kwargs or {}))

    given = inputs(shapes, "cpu", torch.float32)
    same = [t.detach().clone().requires_grad_(t.requires_grad) for t in given]
    short = outputs_and_gradients(ours, given)
    with Watch() as watch:
        long = outputs_and_gradients(ours, same)
    assert watch.seen >= 2
    short, long = (torch.utils._pytree.tree_leaves(results) for results in (short, long))
    assert len(short) == len(long) >= 2
    for a, b in zip(short, long, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize(
    "name", ["rmsnorm", "add_rmsnorm", "layernorm", "swiglu", "softmax", "weighted", "rope", "biased"]
)
def test_operators_are_well_registered(name):
    """Schemas and fake kernels of forward and backward, and forward's autograd, by torch's own checker."""
    calls = calls_of(name)
    assert [str(function).rsplit("_", 1)[1] for function, _ in calls] == ["forward.default", "backward.default"]
    (forward, args), (backward, its_args) = calls
    torch.library.opcheck(forward, args)
    torch.library.opcheck(backward, its_args, test_utils=("test_schema", "test_faketensor"))


def test_every_forward_has_a_backward():
    ops = {
        name.split("::")[1].split(".")[0]
        for name in map(str, torch._C._dispatch_get_all_op_names())
        if "traincore::" in name
    }
    forwards, backwards = ({n for n in ops if n.endswith(end)} for end in ("_forward", "_backward"))
    assert len(forwards) == 7 and {n.replace("_backward", "_forward") for n in backwards} == forwards


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

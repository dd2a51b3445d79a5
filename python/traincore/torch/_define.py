"""From an explicit forward/backward pair to torch.library custom ops with fake kernels and autograd.

Each pass becomes one custom op, `traincore::rmsnorm_forward`, opaque to torch.compile; its fake kernel tells shapes and
dtypes. CPU tensors of float64 run the float64 definitions (traincore.reference), so that torch.autograd.gradcheck works:
it validates the definition, not the kernels, which the tests hold against it.
"""

import numpy as np
import torch
from torch.autograd import forward_ad

from .. import ops, reference

NAMESPACE = "traincore"


def call(name: str, first: torch.Tensor, **keywords):
    """One pass: its kernel, or for float64 on the CPU its definition, which makes its outputs itself."""
    if forward_ad._current_level >= 0:  # autograd has no hook for custom ops here, and would take the derivative as 0
        raise RuntimeError(f"traincore: {name}: forward-mode derivatives are not served; differentiate backwards")
    if first.dtype is not torch.float64 or first.device.type != "cpu":
        return getattr(ops, name)(**keywords)
    outputs = {f.name for f in ops.PASSES[name].outputs}
    arrays = {
        k: v if not isinstance(v, torch.Tensor) else True if k in outputs else v.detach().numpy()
        for k, v in keywords.items()
    }
    found = getattr(reference, name)(**arrays)
    return type(found)(*(torch.from_numpy(np.asarray(a)) if a is not None else None for a in found))


def rows(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor with a contiguous last dimension: itself, or a copy (of a transposed or an expanded one)."""
    if tensor is None or tensor.dim() == 0 or tensor.shape[-1] <= 1 or tensor.stride(-1) == 1:
        return tensor
    return tensor.contiguous()


def statistic_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Of what a forward saves per row, and of a parameter's gradient: f32, or f64 for the definitions."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def or_none(output: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """An output, or what stands for one that is not computed: custom ops return tensors only."""
    return like.new_empty(0) if output is None else output


def _refuse_second_derivative(name: str):
    def refuse(ctx, *gradients):
        raise RuntimeError(
            f"traincore: {name} is a gradient, and a second derivative is not served; "
            "differentiate once, without create_graph=True"
        )

    return refuse


def _is_plain(inputs) -> bool:
    """No mode, trace or transform is there to see the call, and its tensors are memory that kernels read as it stands."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch._C._get_tracing_state() is None
        and all(map(_is_memory, inputs))
    )


def _is_memory(value) -> bool:
    if not isinstance(value, torch.Tensor):
        return True
    return type(value) in _PLAIN and (value.is_cpu or value.is_cuda) and not value.is_neg()


_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Op:
    """A pass as a custom op. In eager mode, where only autograd has to know of a call, the function and its gradient are
    called without the dispatcher, whose way through Python takes longer than they do."""

    def __init__(self, name: str, function, fake):
        self._op = torch.library.custom_op(f"{NAMESPACE}::{name}", function, mutates_args=())
        self._op.register_fake(fake)
        self._function = function
        self._differentiable = None  # else a torch.autograd.Function

    def differentiate(self, gradient, setup_context) -> None:
        self._op.register_autograd(gradient, setup_context=setup_context)
        function = self._function

        class Differentiable(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                output = function(*inputs)
                setup_context(ctx, inputs, output)
                return output

            backward = staticmethod(gradient)

        Differentiable.__name__ = Differentiable.__qualname__ = function.__name__
        self._differentiable = Differentiable

    def __call__(self, *inputs):
        if torch.compiler.is_compiling() or not _is_plain(inputs):
            return self._op(*inputs)
        if not torch.is_grad_enabled() or not any(isinstance(i, torch.Tensor) and i.requires_grad for i in inputs):
            return self._function(*inputs)
        return self._op(*inputs) if self._differentiable is None else self._differentiable.apply(*inputs)


def forward_op(name: str, fake):
    """Registers a forward pass; its gradient comes with `differentiate`."""
    return lambda function: Op(name, function, fake)


def backward_op(name: str, fake):
    """Registers a backward pass, whose own derivative is refused."""

    def register(function):
        op = Op(name, function, fake)
        op._op.register_autograd(_refuse_second_derivative(name), setup_context=lambda ctx, inputs, output: None)
        return op

    return register

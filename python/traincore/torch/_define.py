"""From an explicit forward/backward pair to torch.library custom ops with fake kernels and autograd.

Each pass becomes one custom op, `traincore::rmsnorm_forward`, opaque to torch.compile; its fake kernel tells shapes and
dtypes. CPU tensors of float64 run the float64 definitions (traincore.reference), so that torch.autograd.gradcheck works:
it validates the definition, not the kernels, which the tests hold against it.
"""

import functools
import inspect
import typing

import numpy as np
import torch
from torch.autograd import forward_ad

from .. import ops, reference

NAMESPACE = "traincore"


def kernel(name: str, first: torch.Tensor):
    """The function of traincore.ops that serves a pass; of traincore.reference for a float64 tensor on the CPU."""
    if forward_ad._current_level >= 0:  # autograd has no hook for custom ops here, and would take the derivative as 0
        raise RuntimeError(f"traincore: {name}: forward-mode derivatives are not served; differentiate backwards")
    if first.dtype is not torch.float64 or first.device.type != "cpu":
        return getattr(ops, name)
    return functools.partial(_definition, name)


def _definition(name: str, **keywords):
    """A pass in float64; it makes its outputs itself."""
    outputs = {f.name for f in ops.PASSES[name].outputs}

    def array(key: str, value):
        if key in outputs and isinstance(value, (torch.Tensor, torch.dtype)):
            return True
        return value.detach().numpy() if isinstance(value, torch.Tensor) else value

    found = getattr(reference, name)(**{key: array(key, value) for key, value in keywords.items()})
    return type(found)(*(torch.from_numpy(np.asarray(a)) if a is not None else None for a in found))


def rows(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor with a contiguous last dimension: itself, or a copy (of a transposed or an expanded one)."""
    if tensor is None or tensor.is_contiguous() or tensor.shape[-1] <= 1 or tensor.stride(-1) == 1:
        return tensor
    return tensor.contiguous()


def statistic_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Of what a forward saves per row, and of a parameter's gradient: f32, or f64 for the definitions."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _tensors_only(function):
    """The function as a custom op, which returns tensors only: empty ones stand for outputs that are not computed."""

    @functools.wraps(function)
    def filled(first: torch.Tensor, *others):
        found = function(first, *others)
        if isinstance(found, torch.Tensor):
            return found
        return tuple(first.new_empty(0) if output is None else output for output in found)

    signature = inspect.signature(function)
    positional = [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    filled.__signature__ = signature.replace(parameters=positional)
    return filled


def _refuse_second_derivative(name: str):
    def refuse(ctx, *gradients):
        raise RuntimeError(
            f"traincore: {name} is a gradient, and a second derivative is not served; "
            "differentiate once, without create_graph=True"
        )

    return refuse


def _sees_calls() -> bool:
    """Whether a mode, trace or transform is there to see a call of the dispatcher."""
    return (
        torch._C._len_torch_dispatch_stack() != 0
        or torch._C._len_torch_function_stack() != 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    )


def _is_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor is memory that kernels read as it stands."""
    return (
        type(tensor) in _PLAIN
        and (tensor.is_cuda or tensor.is_cpu)
        and not tensor.is_neg()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # one that outlived its transform
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _tensor_places(function) -> list[int]:
    """Which parameters are tensors, or None."""
    kinds = [p.annotation for p in inspect.signature(function).parameters.values()]
    return [i for i, kind in enumerate(kinds) if torch.Tensor in (kind, *typing.get_args(kind))]


class Op:
    """A pass as a custom op: `function` takes a tensor first and returns tensors, or None for what is not computed. If
    it has a keyword `save`, that says whether it makes what only its gradient needs.

    In eager mode, where only autograd has to know of a call, the function and its gradient are called without the
    dispatcher, whose way through Python takes longer than they do."""

    def __init__(self, name: str, function, fake):
        self._op = torch.library.custom_op(f"{NAMESPACE}::{name}", _tensors_only(function), mutates_args=())
        self._op.register_fake(_tensors_only(fake))
        self._function = function
        saves = "save" in inspect.signature(function).parameters
        self._without_gradient = functools.partial(function, save=False) if saves else function
        self._places = _tensor_places(function)
        self._differentiable = None  # else the apply of a torch.autograd.Function

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
        # Function.apply itself looks for functorch's transforms first, which __call__ has done.
        self._differentiable = super(torch.autograd.Function, Differentiable).apply

    def __call__(self, *inputs):
        if torch.compiler.is_compiling() or _sees_calls():
            return self._op(*inputs)
        wants_gradient = False
        for i in self._places:
            tensor = inputs[i]
            if tensor is None:
                continue
            if not _is_memory(tensor):
                return self._op(*inputs)
            wants_gradient = wants_gradient or tensor.requires_grad
        if not wants_gradient or not torch.is_grad_enabled():
            return self._without_gradient(*inputs)
        return self._op(*inputs) if self._differentiable is None else self._differentiable(*inputs)


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

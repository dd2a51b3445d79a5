"""TrainCore: transformer training kernels, forward and backward, on NumPy, PyTorch and every DLPack array.

traincore.ops         every operation, explicit passes on views of your arrays
traincore.norms, .pointwise, .losses, .matmul, .attention
                      explicit pairs with saved contexts
traincore.torch       autograd functions, modules, AdamW and patch(model); imported by itself, needs PyTorch
traincore.reference   the float64 definitions
traincore.calls       counts of what ran
"""

from . import _library, attention, calls, losses, matmul, norms, ops, pointwise, reference
from ._device import check_device_errors
from .buffer import Buffer
from .errors import Error, Unsupported

__version__ = _library.version()
__all__ = [
    "Buffer", "Error", "Unsupported", "attention", "calls", "check_device_errors", "losses", "matmul", "norms", "ops", "pointwise", "reference",
]  # fmt: skip

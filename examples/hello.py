"""RMSNorm of one row, forward and backward, and what a refusal looks like.   python3 examples/hello.py"""

import numpy as np

import traincore as tc

x, weight = np.array([[1, 2, 3, 2]], np.float32), np.array([1, 1, 2, 1], np.float32)
forward = tc.ops.rmsnorm_forward(x=x, weight=weight, eps=1e-6)
print("y  =", forward.y)

dy = np.ones_like(x)
backward = tc.ops.rmsnorm_backward(dy=dy, x=x, weight=weight, rstd=forward.rstd, dx=True, dweight=True)
print("dx =", backward.dx)
print("dweight =", backward.dweight)

try:
    tc.ops.rmsnorm_forward(x=x, eps=0.0)
except ValueError as error:
    print("refused:", error)

"""The library's own kernels: `.cu` files, each beside a module that says how its variants are launched.

`VARIANTS` lists all of them. Each is tested against NumPy in the emulator, must show no finding and its known use of
memory there (so that a slower access pattern fails without a GPU), and compiles for real cards: `tests/cuda/cases.py`.

The functions are what layers, losses and optimizers call for arrays on a GPU (`distlearn.backend.can_launch` says for
which): each launches the variant that suits the arrays' sizes and addresses.
"""

from distlearn.cuda.kernels import (
    attention,
    convolution,
    elementwise,
    images,
    loss,
    matmul,
    optimizer,
    recurrent,
    reduce,
    transpose,
)
from distlearn.cuda.kernels.elementwise import bias_grad, bias_relu, saxpy
from distlearn.cuda.kernels.loss import softmax_xent
from distlearn.cuda.kernels.optimizer import adam, sgd_momentum
from distlearn.cuda.kernels.variant import Launch, Variant

MODULES = (attention, elementwise, reduce, transpose, matmul, convolution, images, loss, optimizer, recurrent)
VARIANTS = [variant for module in MODULES for variant in module.VARIANTS]

__all__ = ["VARIANTS", "Launch", "Variant", "adam", "bias_grad", "bias_relu", "saxpy", "sgd_momentum", "softmax_xent"]

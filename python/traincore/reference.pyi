# The names, keywords and results of traincore.ops, on NumPy arrays.
from .ops import *

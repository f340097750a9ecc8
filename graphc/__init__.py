"""graphc: declare a tensor computation once, differentiate it, compile it, ship it."""
from graphc.declare import *
from graphc.tensor import Tensor

"""Passes: Graph -> Graph, one file each, and the order in which a function runs them.

A pass is `run(g: Graph) -> Graph` in the file of its name. To add one, see README.md here.
`autodiff` is a pass too, but not of the pipeline: gradients are made when they are declared. Nor is
`recompute`, which trades time for memory and stands before `fuse` where it is wanted.
"""

from graphc.passes.manager import PassStats, Report, dump, load_pass, run_pipeline

PIPELINE: tuple[str, ...] = (
    "inline",        # first: everything else sees through composites
    "simplify",      # before stabilize, which then meets fewer spellings of one form
    "stabilize",     # before strip: its shifts stand behind stop_gradient
    "strip",         # before cse, which merges what stop_gradient kept apart
    "fold",
    "fastmath",      # all it adds to simplify are rules; runs only where asked for
    "simplify",      # again: stabilize and fold leave new numbers, and views that cancel
    "matrix_chain",  # after simplify, which turns transposes into flipped factors
    "straighten",    # after matrix_chain, which makes new products
    "cse",
    "dce",           # before fuse: a dead use would keep a value out of a kernel
    "fuse",          # last: what follows sees kernels
)

__all__ = ["PIPELINE", "PassStats", "Report", "dump", "load_pass", "run_pipeline"]

"""Small static graphs as one straight-line function, or as a few.

    function     the way in: which graphs, and the function itself
    blocks       runs of small kernels of a larger graph: the steps of an unrolled loop
    elements     where each element of each value is, and how it gets where it is wanted
    ops          one op: what folds away, scalars or vectors
    dot          products of small matrices
"""

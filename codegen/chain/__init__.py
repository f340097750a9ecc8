"""Chains: kernels tiled together, so that what one hands to the next never leaves a cache.

A block of rows goes through all kernels before the next one begins, as in FlashAttention (Dao et
al. 2022); `passes/chains` decides which kernels are a chain.

    kernel       the way in: how large blocks are, and the functions of the whole
    blocks       the bodies of the kernels, for a block of their operands
    task         what a thread does: all kernels, on one block after the other
    summed       products that sum over the rows, continued from block to block
    masks        columns that a causal mask makes zero, and that are not computed
    dataflow     what values are in such columns: the analysis behind `masks`
    guards       what must be looked at when a chain runs that leaves out columns
"""

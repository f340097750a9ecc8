"""Matrix products.

    product      batches, blocks of C, threads and epilogues: the function that kernels call
    split        which blocks, and how many tasks
    symmetric    X @ X.T and X.T @ X, of which half is computed
    block        one block of C on one thread: loops over k, packing B, strips of rows
    ways         what a product asks of its block
    strips       how A is cut into strips of rows, and packed
    tiling       how many rows and registers a tile of C has
    micro        strips of tiles of C in registers, one pass over k each
    steps        the loop over k: where the time goes
    pack         copies of operands: packed, transposed, widened, rounded
    row          one row times a matrix
    dot          one column: dot products of rows with a vector
    short_rows   the same where a row is a few registers
    trees        the sums of their lanes
    dot_columns  the same sums where the columns of A are contiguous (gemv of a transposed matrix)
    both         A @ x and v @ A in one reading of A
    pair         its loop over a few rows
    lines        dot products of rows that lie across lines of the cache, by whole lines
    sum          products whose steps of k come a few at a time
    integer, integer_dot    integer products, and those of bytes by dot products of four
    ir           a function under construction
"""

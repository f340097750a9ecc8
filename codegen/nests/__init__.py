"""Loop nests: what a kernel computes, and how it will be run, before any of it is text.

    loops            what a nest is: expressions with index polynomials
    lowering         fused bodies -> nests, by the rules in `pull`
    pull             producers inlined into consumers, one rule per op
    axes             polynomials in loop axes, and which axes are walked as one
    flattened        rows of a few elements by one formula, whose vectors hold several rows
    intervals        where expressions lie whatever the data are, and what ops are told of it
    ranges           what indices are at least and at most, and their divisions by it
    strip_mining     axes cut in two where index arithmetic divides them
    unrolling        short innermost axes written out, so that vectors run along a longer one
    writing_out      a short reduced axis written out, element by element
    stacked_rows     .. where the elements are parts that are put together, or lie across rows
    unrolled_rows    .. and so that vectors run along rows
    unrolled_matrices  .. or along small matrices, all elements of which are written out
    conditions       where conditions on an axis hold, and the stretch of a row without any
    index_splitting  nests cut where conditions on an axis change
    ends             what a short row has once, apart from what its elements take
    versions         versions of a nest for some lengths of rows
    small_sizes      .. and of an elementwise one for two to four elements
    row_parts        rows of several parts, written part by part
    schedule         vector width, sweeps over a row, what tasks are made of
    stages           long formulas cut, so that the CPU looks ahead to other vectors
    sweeps           what each sweep over a row computes, and keeps for later ones
    vector_axis      the axis along which vectors run
    tiles            register blocking: several rows at a time, operands turned
    costs            what computing costs, in cycles of one vector
"""

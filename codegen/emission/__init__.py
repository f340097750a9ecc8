"""Scheduled nests -> LLVM text with explicit vectors.

    nest             the way in: a nest as a task over grid items and a driver
    items            the grid items of a task, one after the other
    frame            one function being written: its context, dimensions and failure flags
    sweep            what the ways of running a grid item share: reading, storing, adding up
    across           a row is swept by vectors along a reduced axis
    abreast          several of these at a time, with what they add up to in registers
    heads            the first elements of such a row, so that its stores begin lines
    in_turns         rows swept some at a time, one sweep after the other
    whole_row        a short row written out, in registers from sweep to sweep
    blocks           an argmax of short integers along a row
    groups           an argmax of other elements along a row
    written          short rows within loops, with their states in registers
    along            every lane is a row of its own
    down             the loops down the axes that these reduce
    last_rows        what long functions leave of rows in lanes, by a call of themselves
    held             rows that few vectors hold, without loops of their own
    staged           long formulas, a stage after the other for a block of vectors
    interior         the part of a row where vectors have no conditions
    short            short rows in lanes, each added up as `across` would
    aliasing         sums in memory, half a page from the rows added to them
    stripes          long columns: rows outside, columns inside
    pieces           which nests are run so, and how many columns and rows at a time
    column_edges     the first and the last vector of columns, where they are parts of one
    running          running sums and products down columns
    between          sums between the bounds of conditions, which are decided there
    bands            long sums with few results
    packed           sums of short rows, several in a vector
    flat             short rows by numbers of rows or columns, several in a vector
    turned           transposed operands, several rows side by side
    columns          column sums beside a row kernel
    interleaving     operands and results of which vectors hold every second, third, .. element
    scope            where in nested loops an expression is computed
    called           long functions of rows that are written out, by calls
    shifted          loads of one operand that begin less than a vector apart, read once
    positions        index polynomials as instructions
    reductions       what is accumulated, and in which order partial results meet
    folds            partial results of lanes as one number
    narrow           sums of short integers, counts of conditions
    streaming        aligned stores, prefetch and non-temporal stores of elementwise kernels
    places           sums over all rows of what each row gives
    prefetch         what is asked for ahead: the next row, what comes soon of streams and strips
    ahead            loads ahead of stores
    dot              a fused product with its epilogue (the products themselves: `matmul/`)
    scatter          updates at positions from data
    emitter          the lines of a function, and the module they go into
    literals         one element as text: scalar types and constants
    parts            part of a vector, copied where the machine has no masks
    lane_masks       which lanes of a vector count, by their numbers
    registers        registers of several elements: types, plain instructions, shuffles
    lanes            how such registers are read from and written to memory
"""

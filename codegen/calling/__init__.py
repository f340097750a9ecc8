"""Calls from Python: a builtin, written as LLVM text, that reads NumPy's structs itself.

    fastcall         the way in: a loaded program and the builtin that Python calls
    wrapper          the builtin: from NumPy's structs to the entry point and back
    numberarg        inputs that come as numbers
    outarg           `out=`, and what the builtin does not serve itself
    capi             the C functions of Python that it calls, and locking
    pylayout         what it assumes about CPython's and NumPy's structs, and the test of that
    recycle          memory of dropped outputs for the next ones
    allocator        its functions, as LLVM text
    bridge           functions of emitted libraries, called the same way
"""

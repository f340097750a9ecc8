"""From compiled functions to a native library.

    make         the pieces put together as one LLVM module
    abi          names, types, layout of the state, status codes: the library as C sees it
    entry, small the exported functions; those of small ones without what they do not need
    levels       which CPU level is used
    data, state  constants and `init`; saving and loading the state
    pool         the thread pool as a library carries it
    merge        many modules into one
    descriptor   what a library says about itself, as JSON
    header       the C header
    cpp, cpp_methods          the C++ header; the methods in it that functions become
    write        its files, whole or not at all
    link, foreign, archive    ELF libraries; those of other systems; static ones
    libc, windows, wasm       what stands in for a C library
"""

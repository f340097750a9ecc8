"""LLVM text -> instructions of a CPU, in memory, on disk, or for another machine.

    target           what code is generated for: a CPU as kernels see it
    platforms        the systems and CPUs that libraries are made for
    llvm             text to objects, by llvmlite
    generator        LLVM's code generator, called past the locks around it
    units            a module's text in partitions that are compiled apart
    overlap          LLVM loaded, and functions compiled, while others are being written
    cross            code for another machine, in a process of its own
    libcalls         what LLVM calls of its own accord
    jit              native code in this process
    linker, elf      objects linked into memory; reading their files
    image            what stands between compiling and loading
    cache            objects on disk
    program_cache    whole programs on disk
    residency        memory of LLVM's own that is given back
"""

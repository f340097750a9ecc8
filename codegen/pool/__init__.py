"""The thread pool that native code carries, as LLVM text.

    runtime      the way in: the protocol, its constants, and the text for a platform
    memory       where the pool keeps what changes: a block that a fork wipes
    workers      how workers begin, wait, sleep and end
    regions      what a caller does: cuts work into parts, wakes workers, claims chunks
    waiting      .. and how it waits for those at work
    affinity     not the caller's CPU: where a worker that was woken runs
"""

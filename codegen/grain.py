"""How finely work is cut for threads, and from when on: the constants, and what they come from.

Cuts follow from shapes alone, so cycles here are estimates (`costs.cost_of`), some two or three
times too few where data come from memory. Measured on two cores with AVX-512:

- A region between running threads takes 0.2 us if there is nothing to do, 0.3 us more than its half
  if there is (`tests/benchmarks/thread_pool.py`); 16 chunks of 1 us take two threads 8.4 us. So
  chunks of 1 us are no loss, and kernels gain from some 5 us on: sums over 512x512 f32 take 4.0 us
  in the place of 5.8, exp of 256x256 5.8 of 9.7.
- Where workers sleep, a region must save more than it takes to wake them: the pool sees to that
  (`pool.regions`), since only it knows.
- Products that read what another core has just written take a third longer, 14 ns a line. Side by
  side, two products of 20 us and two of 40 us in each step of an LSTM's gradient take 3.06 ms in
  all in the place of 3.97, two of 96x96 11 us of 20; steps of an MLP 64-128-128-10 at
  batch 128 (waves of 80 us) gain 5% with SGD and lose 1% with Adam.

Products have constants of their own, in `matmul/split`: what they pack must be used often enough.
"""

from __future__ import annotations

SHARED_CYCLES = 20_000         # of a loop nest that threads share
CHUNK_CYCLES = 2_500           # of a task of it, at least, so that threads end together;
COLUMN_CHUNK_CYCLES = 20_000   # if each has accumulators of its own to be cleared and added up
MAX_CHUNKS = 64                # tasks of it, at most: their sums are added up one by one

WAVE_CYCLES = 100_000   # of kernels side by side that a second thread pays for, some 30 us, ..
WAVE_SHARE = 2, 3       # .. unless one has more than so much of it, and had better be shared out
LONELY_CYCLES = 40_000  # likewise of kernels that cannot share themselves out, such as scans
LARGE_CYCLES = 800_000  # of a kernel that had better share itself out among all threads

BOTH_ELEMENTS = 1 << 17  # of a matrix beside two vectors, from which threads share its rows: 15 us

"""Constants of graphc that decide how a kernel is written, by module, and values to try of each:
extremes, at which paths made for large sizes are taken at small ones (`test_thresholds`)."""

# What no bit depends on: where things stand, which threads compute them, what waits for what.
PLACES = {
    "codegen.addresses": {"STRETCH": (1, 20)},
    "codegen.calling.allocator": {"FROM_BYTES": (64,)},
    "codegen.emission.in_turns": {"MOST": (1, 3), "STRIP_BYTES": (0, 1 << 16)},
    "codegen.emission.abreast": {
        "MOSTLY_LOADS": (0, 999), "MOST_LEFT": (0, 9999), "MOST_UNKNOWN": (0, 9999)},
    "codegen.emission.heads": {"LEAST_BYTES": (8, 1 << 30), "MOST_COST": (0, 9999)},
    "codegen.nests.sweeps": {
        "LEAST_SAVED": (1, 9999), "MOST_SAVED_ROW": (64, 1 << 20), "READ_AGAIN": (0, 99)},
    "codegen.emission.last_rows": {"LEAST_EXPRS": (1, 9999), "MOST_BYTES": (512, 1 << 16)},
    "codegen.emission.called": {
        "FOUR": (2, 8), "TWO": (4,), "MOST_COST": (0, 1 << 20), "MOST_COST_OF_FEW": (0, 1 << 20)},
    "codegen.emission.between": {"MOST": (0, 64), "LONG": (0, 64, 1 << 40)},
    "codegen.emission.bands": {"FAR_BYTES": (0, 1 << 12), "FAR_ROW": (0, 9999)},
    "codegen.emission.pieces": {
        "ROW_BYTES": (256, 1 << 20), "LONE_BYTES": (0, 1 << 14), "CHEAP": (0, 99)},
    "codegen.emission.prefetch": {
        "LEAST_BYTES": (8,), "MOST_BYTES": (1 << 20,), "MOST_ALONE": (8, 1 << 20),
        "NEAR_BYTES": (64,), "FAR_BYTES": (0, 1 << 12), "CHEAP": (0, 99), "STREAMS": (2,),
        "BLOCK_BYTES": (1 << 12,), "CORE_BYTES": (0, 1 << 12), "AHEAD": (64,),
        "STRIP_BYTES": (0, 1 << 30)},
    "codegen.chain.kernel": {"BLOCK_BYTES": (512, 4096), "BLOCK_CYCLES": (512, 8192)},
    "codegen.compile": {"INLINE_BYTES": (0, 1 << 16)},
    "codegen.nests.costs": {
        "PARALLEL": (1, 100), "LONG_CHAIN": (1, 100), "MAX_INTERLEAVED": (1, 9999),
        "MAX_AVX2": (1, 9999), "ALIASED": (0,), "CARRIED": (1, 4), "CARRIED_LONG": (1,),
        "MOST_LONG": (0,), "MOST_DIVIDED": (0, 1), "HALVED": ((0, 0), (9, 9)),
        "LEAST_STEPPED": (0, 1000), "HELD": (0, 100), "WINDOW": (0, 9999), "IN_TWELVE": (0, 99),
        "SPILLED": (-99, 0, 99),
    },
    "codegen.nests.tiles": {
        "ROWS_BYTES": (512, 1 << 14), "BESIDE": (1, 3, 8), "LEAST_SHARED": (0, 1, 99),
        "BESIDE_ROW": (8, 9999), "BESIDE_BYTES": (256, 1 << 30),
    },
    "codegen.emission.whole_row": {"AT_ONCE": (1, 8)},
    "codegen.grain": {
        "WAVE_CYCLES": (1, 1000), "WAVE_SHARE": ((1, 100), (1, 1)), "LONELY_CYCLES": (1, 1000),
        "LARGE_CYCLES": (1, 1000), "BOTH_ELEMENTS": (16, 512),
    },
    "codegen.chain.guards": {"UNROLL": (1, 2, 8)},
    "codegen.kernels": {"LONG_IN_PLACE": (0, 9999)},
    "codegen.chain.dataflow": {"MOST_STEPS": (1, 64)},
    "codegen.matmul.product": {"STREAMED_ROW": (16, 128)},
    "codegen.matmul.ways": {"PARTIAL_TILES": (0, 100)},
    "codegen.matmul.split": {
        "SPLIT_FLOPS": (64, 4096), "TASK_FLOPS": (64, 4096), "MOST_TASKS": (1, 64),
        "FEW_TASKS": (1, 64), "LEAST_BYTES": (64, 256), "LEAST_ROWS": (2, 24),
        "KEPT_BYTES": (64, 4096), "KEPT_ROWS": (1, 4), "KEPT_UNIT": (1, 3), "LONG_BYTES": (64, 256),
        "LONG_PARTS": (1, 16), "FEW_ROWS": (2, 112), "FEW_BYTES": (128, 2048),
        "LARGE_BYTES": (64, 1 << 30), "STREAMED": (64, 4096), "PASSING_ROWS": (12, 24),
        "PASSING_BYTES": (1 << 12, 1 << 21), "THIN": (1, 200), "THIN_BYTES": (1 << 10, 1 << 15),
        "NEAR_BYTES": (1 << 10, 1 << 14), "VECTOR_WEIGHT": (0.1, 1000.0),
    },
    "codegen.matmul.block": {
        "FAR_BYTES": (0, 1024), "PACK_BYTES": (64, 1024), "MANY_ROWS": (0, 9999),
        "UPRIGHT_BYTES": (0, 1 << 30),
    },
    "codegen.matmul.row": {
        "WAY_BYTES": (8, 1 << 16), "FAR_BYTES": (0, 1 << 12), "LEAST_FAR_ROW": (0, 1 << 20),
        "ASKING_ROWS": ((8, 1),), "ASKED_ROW": (0, 1 << 20), "LINES_ROW": (0, 1 << 20),
        "SINGLE_ROW": (64, 1 << 20), "LONG_SINGLE": (0, 1 << 20)},
    "codegen.matmul.strips": {
        "NEAR_ROWS": (64,), "FLAT_TILES": (1, 100), "MANY_TILES": (1, 100), "WAY_BYTES": (64, 256),
        "TALL_ROWS": (1, 1000), "TOGETHER": (1, 3), "APART_BYTES": (0, 1024),
    },
    "codegen.matmul.steps": {"TURN": (2, 8), "NEAR_BYTES": (0, 256, 1 << 30)},
    "codegen.delayed": {
        "LEAST_BYTES": (16,), "BLOCK_BYTES": (16, 256, 2048), "NEAR_ROWS": (1, 9),
        "ROUND": (1, 16), "CHUNK_BLOCKS": (1, 4), "SHARE": (1,),
    },
    "codegen.matmul.dot": {
        "ALIGNED_ROWS": (1, 9999), "TAIL_REGISTERS": (1, 3),
        "ASK_BYTES": (0, 1024), "ASK_ROW": (0, 1 << 15), "LONG_ROW": (0, 1 << 15),
        "STREAM_BYTES": (0, 512), "FURTHER": (0, 64), "LINES_ROW": (0, 1 << 20),
        "LEAST_SINGLE": (0, 999), "MOST_SINGLE": (64, 1 << 20), "SINGLE_BYTES": (0, 1 << 12)},
    "codegen.matmul.dot_columns": {"NEAR": (0, 1 << 12)},
    "codegen.matmul.both": {
        "GROUP_BYTES": (256, 4096), "GROUP_BYTES_BY_LINES": (256, 4096),
        "LEAST_GROUP_ROWS": (1, 8), "MOST_GROUP_ROWS": (8, 16), "BY_TWO": ((0, 1 << 20), (0, 0))},
    "codegen.matmul.pair": {"ASKED_ROW": (0, 1 << 20)},
    "codegen.matmul.pack": {"AHEAD": (1, 4)},
    "codegen.matmul.short_rows": {"MOST_BYTES": (0, 1024), "FEW": (1, 2, 4)},
    "codegen.plan": {"MAX_WAVE": (2, 64), "REPRESENTATIVE": (1, 1000)},
    "codegen.nests.row_parts": {
        "BYTES": (8, 256), "MEMORY": (0, 99), "GAIN": (0, 99), "CONDITION": (0, 99),
        "MASKED": (0, 9999), "PART": (0, 99), "PART_BITS": (64, 9999),
    },
    "codegen.emission.held": {"VECTORS": ((1, 2, 3, 4), (1, 1, 8)), "COST": (0, 9999)},
    "codegen.emission.interleaving": {"PICKED": (0, 100), "FEW": (1, 99)},
    "codegen.emission.parts": {"LANES": (1, 9999)},
    "codegen.emission.short": {"WRITTEN": (0, 1, 9999)},
    "codegen.emission.turned": {"FAR": (0, 1 << 12)},
    "codegen.emission.streaming": {
        "BYTES": (64, 2000), "AHEAD": ((64, 64), (256, 64)), "MOST_COST": (0, 1000),
        "LONG_ROW": (7, 64), "SHORT": (0, 1000), "NEAR": (64,), "NEARER": ((64, 128),),
        "FARTHER": ((64, 128),), "TURNED": (64, 1 << 40), "FEWER": (64, 1 << 40),
        "SOON": (0, 256, 1 << 40), "SHARING_ROW": (0, 1 << 40),
    },
    "codegen.chain.masks": {"LEAST": (0, 1)},
    "codegen.merge_functions": {"MOST": (0, 100), "MANY": (1, 2)},
    "codegen.nests.flattened": {"MOST": (2, 8), "LEAST": (1, 100), "APART": (1, 4)},
    "codegen.emission.scatter": {"WIDEST": (64, 512), "STRAIGHT": (1, 16), "UNROLL": (1, 2)},
    "codegen.nests.unrolling": {
        "MOST": (2, 4), "SMALL": (2, 64), "SAVED": (1, 50), "MOST_EXPRS": (4, 20),
        "LEAST": (2, 100), "NEAR": (1, 8), "APART": (4, 100), "TURNED": (0, 1000),
    },
    "codegen.nests.unrolled_matrices": {
        "MOST": (1, 16, 99), "FEW": (1, 99), "MOST_ROW": (1, 4), "MOST_COST": (0, 9999),
        "LEAST": (16, 99), "ROW": (0, 1000), "FOLD": (0, 1000), "ACROSS": (0, 1000),
        "SQUARE": (0, 9), "GAIN": (0, 9),
    },
    "codegen.machine.overlap": {"PART_BYTES": (0, 3000), "LONG_NODES": (0, 1 << 20)},
    "codegen.machine.units": {"AROUND_BYTES": (0,)},
    "codegen.calling.wrapper": {"STACK_ARENA": (0,), "RELEASE_BYTES": (0,)},
    "passes.both": {"LEAST_ROWS": (2, 16), "ROW_BYTES": ((8, 1 << 17),), "LEAST_BYTES": (1, 1024)},
    "passes.one_sweep": {
        "LEAST_ROW": (1, 9999), "LONG_ROW": (1, 9999), "LEAST_SHARE": (0, 2),
        "MOST_NODES": (1, 9999), "MOST_COST": (0, 9999),
    },
    "passes.chains": {
        "LEAST_BYTES": (64, 4096), "BLOCK_ROWS": (16, 64), "GAIN": (1, 3),
        "AGAIN_BYTES": (64, 4096), "MOST_KERNELS": (2, 100),
    },
    "passes.ordering": {"REPRESENTATIVE": (1, 1000), "FEW": (1, 40)},
    "passes.repeated": {"REPEATED": (0, 1)},
    "passes.roles": {"LARGE_STATE": (0, 1 << 16), "LONG_ROW": (1, 100)},
}
# What fuses otherwise, or adds up in other pieces.
ORDERS = {
    "codegen.emission.in_turns": {"MOST": (1, 3), "STRIP_BYTES": (0, 1 << 16)},
    "codegen.emission.across": {"CHEAP": (0, 400)},
    "codegen.emission.bands": {"ROWS": (16, 32), "MOST_LINES": (8, 128), "MOST_ROW": (1, 1000)},
    "codegen.emission.packed": {
        "CHAINS": (1, 8), "CHEAP": (0, 999), "MOST": (0, 64), "MOST_CODE": (0, 9999),
        "PART": (1, 1 << 16),
    },
    "codegen.emission.places": {"ROWS": (1, 2, 64)},
    "codegen.nests.costs": {"COSTLY": (1, 100), "BY_CONSTANT": (1, 100)},
    "codegen.emission.dot": {"SHORT_ROW": (0, 9999)},
    "codegen.nests.ends": {"AGAIN": (0, 9999)},
    "codegen.grain": {"MAX_CHUNKS": (3, 64)},
    "codegen.nests.index_splitting": {
        "SHORTEST": (1, 3), "MOST": (8, 64), "MOST_OF_ROWS": (2, 64), "COMPARED": (1, 64),
        "LONG": (1, 64), "FEWEST": (0, 9999), "SMALL": (1, 9999),
    },
    "codegen.nests.conditions": {
        "TYPICAL": (4, 64, 500), "LONG": (1, 16, 1000), "FAR": (0, 1 << 40)},
    "codegen.nests.versions": {
        "FEW_ROWS": (1, 99), "ROW_VECTORS": (1, 2, 8), "NEAREST_ROW": (1, 64)},
    "codegen.nests.small_sizes": {"MOST_COST": (0, 9999), "NUMBERS": ((), (1, 3, 7))},
    "codegen.nests.schedule": {
        "SHORT_COLUMN": (4, 64), "COLUMN_BYTES": (256, 512), "MANY_BLOCKS": (1, 200),
        "ROW_BLOCK": (4, 64), "MOST_ABREAST": (0, 10000), "SCANNED_ROWS": (1, 2, 8),
        "CHEAP_SCAN": (0, 100), "CHEAP_LOOKUP": (0, 100),
    },
    "codegen.nests.sweeps": {
        "STRAIGHT": (1, 5000), "STRAIGHT_VECTORS": (1, 16), "STRAIGHT_SWEEP": (1, 5000),
        "SWEPT_VECTORS": (1, 16),
        "MAX_CACHED_ROW": (8, 64), "MAX_LENT": (0, 1 << 30), "IN_STEP": (1, 2, 8),
    },
    "codegen.nests.stages": {
        "COST": (4, 16, 999), "MOST_KEPT": (1, 999), "BIT": (1, 9), "BYTES": (1, 1 << 16),
        "MOST_BYTES": (1, 1 << 20), "ABREAST": (1, 2, 8), "OF_ONE_CHAIN": (1, 4), "NEARLY": (1, 9),
        "MOST_CODE": (1, 1 << 20), "WINDOW": (1, 9999), "GAIN": (0, 99), "CALL": (9, 999),
        "COUNT": (1, 9), "LATENCY": (1, 9), "LATENCY_SIMPLE": (1, 9), "CYCLES_KEPT": (0, 9),
        "CYCLES_SIMPLE": (0, 1),
    },
    "codegen.straight.blocks": {"LEAST": (1, 100), "SHARE": (1, 4), "PATCHES": (0, 100)},
    "codegen.straight.function": {"MAX_BYTES": (0, 1 << 20)},
    "codegen.nests.unrolled_rows": {
        "MOST": (1, 4, 32), "FEW": (1, 16), "SLOW": (1, 32), "MOST_EXPRS": (1, 9999),
        "LEAST": (16, 9999), "LEAST_LIGHT": (16, 9999),
    },
    "codegen.emission.pieces": {
        "NEAR_BYTES": (1 << 12, 1 << 13), "LEAST_COLUMNS": (64, 128),
        "CACHED_BYTES": (1 << 10, 1 << 13), "LEAST_PIECE": (1, 4), "PIECE": (2, 16),
        "PAGE": (64, 128), "LEAST_VECTORS": (1, 3), "LEAST_ROWS": (2, 9), "EVEN": (4, 64),
    },
    "codegen.emission.stripes": {"STRIP": (1, 2, 8)},
    "codegen.nests.tiles": {
        "TURNED_BYTES": (8, 32), "TURNED_LEAST": (2, 4), "COLUMNS": (16, 32),
        "SPREAD_BYTES": (512, 4096), "SPREAD_ROWS": (2, 8), "FOLDS": (0, 100),
        "LEAST_FOLDED": (2, 20), "FILLED": (16, 256), "SIDE_BY_SIDE": (2, 8),
    },
    "codegen.nests.vector_axis": {
        "FEW": (1, 8), "FEW_PLACES": (4, 31), "FEW_ENDS": (4, 31), "FEW_STORED": (2, 30),
        "LONG_COLUMN": (2, 500), "SIDE_ROWS": (1, 100), "LEAST_BACK": (1, 99), "NEAR": (1, 9),
        "THIN_BITS": (0, 512),
    },
    "codegen.nests.strip_mining": {"LEAST": (1, 99)},
    "passes.across": {"LEAST": (0, 1 << 20), "FEW": (0, 100)},
    "passes.copies": {"MOST": (1, 20), "SMALLER": (1, 10)},
    "passes.grouping": {
        "MAX_NODES": (3, 10), "MAX_SWEEPS": (2, 4), "REPEATED": (0, 999), "SCANNED": (0, 999),
    },
    "passes.groups": {
        "MAX_COLUMNS": (4, 64), "MAX_ROW": (16, 256), "FEW_COLUMNS": (1, 100), "SHORT_ROW": (0, 99),
    },
    "passes.pulling": {
        "MAX_DEPTH": (0, 2), "SPREAD": (0, 100), "AGAIN": (0, 100), "AGAIN_FAR": (0, 100),
        "AGAIN_OUT": (0, 100), "FAR_BYTES": (0,), "OUT_BYTES": (0,),
    },
    "passes.batched_products": {
        "MATRIX_BYTES": (0, 1 << 20), "ROWS_BYTES": (0, 1 << 20), "ROW_BYTES": (0, 1 << 20),
        "COLUMNS_BYTES": (0, 1 << 20), "LEAST_TERMS": (0, 1 << 20),
        "PAIRS": (0, 99), "LONG": (1, 9999),
    },
    "codegen.nests.stacked_rows": {
        "MOST": (1, 4, 32), "FEW": (1, 16), "MOST_COST": (1, 9999), "MOST_EXPRS": (1, 9999),
        "LEAST": (1, 9999),
    },
    "passes.elementwise_products": {
        "OUTER": (4, 64), "LEAST": (1, 1 << 20), "TERMS": (1, 9), "NARROW": (1, 9, 100),
        "COLUMNS": (1, 40), "PAIRS": (1, 1000), "ROWS": (1, 1000),
    },
    "passes.joining": {"SCALARS": (0, 100), "MOST_READERS": (0, 100)},
    "passes.recompute": {"CHEAP": (1, 200)},
    "passes.stacks": {"MAX_PLACES": (0, 3)},
    "passes.straighten": {"SEVERAL": (1, 2)},
    "passes.few_columns": {
        "PART": (0, 999), "LEAST": (0, 1 << 30), "LINE": (0, 999), "FEW_LINES": (0, 9999),
        "MANY": (0, 1 << 30),
    },
    "passes.narrow_products": {"ALONG": (0, 64), "DOWN_BYTES": (0, 512), "ROWS": (1, 1000)},
    "passes.unstored": {"LEAST": (1, 1 << 20), "LESS": (0, 1)},
}
SHARED = {"SHARED_CYCLES": 300, "CHUNK_CYCLES": 50, "COLUMN_CHUNK_CYCLES": 100}  # together

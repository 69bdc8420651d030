"""Memory that all stores of a process share, so that it is bounded for the process and not for each partition."""

from __future__ import annotations

import functools
from typing import Final

from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

BLOCK_CACHE_BYTES: Final = 256 << 20
"""Blocks that were read, and the filters and indexes of all table files: of 10^8 rows they are about 200 MB."""
WRITE_BUFFERS_BYTES: Final = 128 << 20
"""Rows that are not in table files yet, over all stores; what is over it is written out."""
WRITE_BUFFER_BYTES: Final = 16 << 20
"""The same for one table of one store."""
BLOOM_BITS_PER_KEY: Final = 16
"""One look-up for a missing key in a thousand reads a table file for nothing."""
BLOCK_BYTES: Final = 4 << 10
MEMTABLE_BLOOM_SHARE: Final = 0.02
"""Share of a write buffer that is the filter over it: about 16 bits a row."""
COMPACT_DELETIONS: Final = 1_000
"""Deletions that let a table file be rewritten early when they are half of as many rows in a row twice as long: a
reader would have to step over each."""


class StoreMemory:
    """Block cache and write buffers.

    Attributes:
        cache: blocks, filters and indexes.
        buffers: rows that wait to be written out.
    """

    def __init__(self) -> None:
        self.cache = Cache(BLOCK_CACHE_BYTES)
        self.buffers = WriteBufferManager(WRITE_BUFFERS_BYTES, False)

    def options(self) -> Options:
        """Return options of a store and of each of its tables.

        Filters and indexes are split in blocks that come and go in the cache like all others, so that a store of any
        size opens at once and takes no more memory than it is given. The filter stands in the table files themselves:
        it is written with the rows that it is over and forgets with them.
        """
        table = BlockBasedOptions()
        table.set_block_cache(self.cache)
        table.set_block_size(BLOCK_BYTES)
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
        table.set_index_type(BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_pin_top_level_index_and_filter(True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_write_buffer_manager(self.buffers)
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_SHARE)
        options.set_memtable_whole_key_filtering(True)
        options.add_compact_on_deletion_collector_factory(2 * COMPACT_DELETIONS, COMPACT_DELETIONS, 0.5)
        return options


@functools.cache
def shared_memory() -> StoreMemory:
    """Return the memory of this process's stores."""
    return StoreMemory()

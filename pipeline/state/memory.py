"""Memory that all stores of a process share, so that it is bounded for the process and not for each partition."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol
from weakref import WeakSet

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

BLOCK_CACHE_BYTES: Final = 128 << 20
"""Blocks of rows that were read."""
WRITE_BUFFERS_BYTES: Final = 128 << 20
"""Rows that are not in table files yet, over all stores; what is over it is written out."""
WRITE_BUFFER_BYTES: Final = 16 << 20
"""The same for one table of one store."""
LOG_BYTES: Final = 64 << 20
"""Write-ahead log of one store. A start reads it; without a bound a table that hardly changes would keep all of it."""
BLOOM_BITS_PER_KEY: Final = 16
"""Fewer than one look-up in a thousand for a missing key reads a table file for nothing. The filters of the table files
that are there are in memory: 2 MB for a million rows, none for none."""
BLOCK_BYTES: Final = 4 << 10
MEMTABLE_BLOOM_SHARE: Final = 0.02
"""Share of a write buffer that is the filter over it: about 16 bits a row."""
COMPACT_DELETIONS: Final = 1_000
"""Deletions that let a table file be rewritten early when they are half of as many rows in a row twice as long: a
reader would have to step over each."""


class StoreFigures(NamedTuple):
    """What a store takes.

    Attributes:
        rows: by table, estimated: those that were overwritten or deleted count until files are rewritten.
        filter_bytes: memory for the filters and indexes of its files.
        disk_bytes: of its files.
    """

    rows: Mapping[str, int]
    filter_bytes: int
    disk_bytes: int


class TellsFigures(Protocol):
    """A store, as far as its memory is of interest."""

    def figures(self) -> StoreFigures | None:
        """Return what it takes, None when it is closed; may be called from any thread."""
        ...


class StoreMemory:
    """Block cache and write buffers.

    Attributes:
        cache: blocks of rows.
        buffers: rows that wait to be written out.
        stores: those that are open, to be asked what they take.
    """

    def __init__(self) -> None:
        self.stores: WeakSet[TellsFigures] = WeakSet()
        self.cache = Cache(BLOCK_CACHE_BYTES)
        self.buffers = WriteBufferManager(WRITE_BUFFERS_BYTES, False)

    def options(self) -> Options:
        """Return options of a store and of each of its tables.

        A filter stands in the table file whose keys it is over: it is written with the rows, grows and forgets with
        them, and is read when the file is opened. In blocks of the cache, with the index, it would cost a look-up there
        for each file and key: five times as much for a missing key.
        """
        table = BlockBasedOptions()
        table.set_block_cache(self.cache)
        table.set_block_size(BLOCK_BYTES)
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(WRITE_BUFFER_BYTES)
        options.set_write_buffer_manager(self.buffers)
        options.set_max_total_wal_size(LOG_BYTES)
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_SHARE)
        options.set_memtable_whole_key_filtering(True)
        options.add_compact_on_deletion_collector_factory(2 * COMPACT_DELETIONS, COMPACT_DELETIONS, 0.5)
        return options


@functools.cache
def shared_memory() -> StoreMemory:
    """Return the memory of this process's stores."""
    return StoreMemory()

"""Benchmarks: the whole pipeline beside a peer (`make bench`), and parts of it alone."""

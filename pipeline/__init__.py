"""Headrace: stages, delivery and tools of the crawl pipeline."""

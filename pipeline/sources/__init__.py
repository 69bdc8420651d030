"""One folder a source: selectors, valid-until, golden pages."""

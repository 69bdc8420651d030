"""The four stages, wired: a page each."""

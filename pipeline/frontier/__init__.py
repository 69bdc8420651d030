"""The frontier, pure: what to fetch, when, and why not."""

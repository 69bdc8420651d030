"""State of a partition with its changelog."""

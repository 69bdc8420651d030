"""The HTTP API: tasks submitted, and what became of them."""

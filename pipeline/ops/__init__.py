"""Running it: lag, metrics, health, topics."""

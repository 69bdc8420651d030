"""What runs on one machine: broker, registry, simulated web, demo."""

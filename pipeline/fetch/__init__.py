"""HTTP: client, address guard, body reader, gate."""

"""Words of the web, pure: URLs, domains, robots, encodings."""

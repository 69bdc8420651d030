"""Exactly-once delivery: transport, identity, offsets, transactions, runners, dead letters."""

"""Tasks as people write them: one model, the files they stand in, and what is wrong with them, by line and field."""

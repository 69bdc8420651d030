"""From bytes to documents and links; pure, run in disposable worker processes."""

"""One folder a question; each takes typed arguments."""

"""The fleet that a trace of requests needs."""

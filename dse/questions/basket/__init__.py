"""One shape for several chips."""

"""Speed and search quality, each run by one command."""

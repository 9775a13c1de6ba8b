"""A study: one search of one space, in one folder."""

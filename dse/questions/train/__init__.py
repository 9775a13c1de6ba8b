"""Training as people ask for it: the best plan on given chips, what it takes, and what it is
unsure of."""

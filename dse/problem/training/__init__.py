"""Training of one candidate: the trainer, its intervals, what it assumes."""

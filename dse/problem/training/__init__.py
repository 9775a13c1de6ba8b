"""Training of one candidate: the trainer, its intervals, what it assumes."""

# Metrics of a point that is trained, and those of its life where it then serves so much.
OF_TRAINING = (
    "training_days", "training_usd", "training_kwh", "training_chip_hours", "training_mfu",
)  # fmt: skip
OF_LIFE = (
    "lifetime_usd", "lifetime_serving_share", "lifetime_flops", "lifetime_chip_hours",
)  # fmt: skip

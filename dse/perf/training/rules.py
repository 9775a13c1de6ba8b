"""What a study with a `training:` section holds its shapes to."""

TRAINING_RULES = {
    "training_fits": "the model can be trained on the chips of the training section",
}

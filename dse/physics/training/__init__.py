"""Training: memory and time of one optimizer step of n models on n deployments (`evaluate`)."""

"""Predictions against measurements: kernel and serving fits, error tables."""

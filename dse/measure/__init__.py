"""Measures the device at hand and writes an efficiency file of it (`dse calibrate`)."""

"""Search engines behind one protocol, and the study of record. The only place that imports
Optuna."""

"""`dse catalog`: chips, models, spaces, prices and racks. Each function returns an Answer whose
document is what `--json` prints."""

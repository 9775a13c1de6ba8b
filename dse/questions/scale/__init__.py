"""Scale-up against scale-out: one model on one chip, from one chip to hundreds in one instance."""

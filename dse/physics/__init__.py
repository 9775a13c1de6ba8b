"""The physics: a batch of candidates in, arrays of shape (n,) out; NumPy only, no I/O."""

"""What each figure of a chip does for training and for serving, and what it is worth."""

"""Two studies, chips, dates or fleets side by side."""

"""What-if questions on a study: changed inputs, sensitivities, break-even, equal footing."""

"""What an answer is made of: numbers, words and tables, without a question."""

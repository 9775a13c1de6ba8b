"""What a person reads of an answer: the console, Markdown, pages and files."""

"""The formula language: syntax tree, parser, text, and what each operation means."""

"""A report to sign: one page that says what was claimed, on what ground, and how to check it again."""

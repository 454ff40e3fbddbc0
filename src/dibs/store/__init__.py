"""Where tasks live: one contract, several engines."""

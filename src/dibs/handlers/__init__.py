"""Handlers: the functions that run tasks, their arguments, their context, and the exceptions that end an attempt."""

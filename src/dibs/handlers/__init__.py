"""Handlers: the functions that run tasks, their arguments, their context and the ways they can end."""

"""A backend of an engine that dibs does not know."""

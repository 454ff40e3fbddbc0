"""A Django app with a model, tasks and views."""

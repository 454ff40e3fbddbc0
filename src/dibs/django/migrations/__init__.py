"""The migrations of the Django app: one for each migration of dibs."""

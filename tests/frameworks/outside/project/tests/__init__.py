"""The tests of django-tasks-db are copied into this package. Their source distribution lacks the other modules."""

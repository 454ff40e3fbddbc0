"""The test suites of Django and of django-tasks-db, downloaded when the tests run, against DibsBackend."""

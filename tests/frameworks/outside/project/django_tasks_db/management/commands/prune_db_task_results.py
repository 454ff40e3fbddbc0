"""A name that the tests import. The tests that use it are left out."""

import logging

logger = logging.getLogger("django_tasks_db")

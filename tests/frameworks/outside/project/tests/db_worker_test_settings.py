"""The settings of the workers that the tests start."""

from settings import *  # noqa: F403

"""A module that no other module imports."""

from tests.frameworks.django.shop.tasks import add

task = add

"""The app config."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.frameworks.django.shop"
    label = "shop"

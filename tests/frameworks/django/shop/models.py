"""One model."""

from django.db import models


class Order(models.Model):
    number = models.IntegerField()
    shipped = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"

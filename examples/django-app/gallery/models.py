from django.db import models


class Picture(models.Model):
    owner = models.EmailField()
    name = models.CharField(max_length=255)
    content = models.BinaryField()
    thumbnail = models.BinaryField(null=True)
    uploaded_at = models.DateTimeField(auto_now_add=True)

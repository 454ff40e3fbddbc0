"""The URLs."""

from django.urls import path

from tests.frameworks.django.shop import views

urlpatterns = [path("order/", views.order), path("order-async/", views.order_async)]

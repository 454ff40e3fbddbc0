"""Views that enqueue."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse

from tests.frameworks.django.shop.models import Order
from tests.frameworks.django.shop.routers import USED
from tests.frameworks.django.shop.tasks import add, ship


def order(request: HttpRequest) -> JsonResponse:
    """Store an order and its task, and fail if asked to."""
    with transaction.atomic(using=USED["alias"]):
        new = Order.objects.create(number=7)
        shipping = ship.enqueue(new.pk)
        if "fail" in request.GET:
            raise RuntimeError("asked to fail")
    return JsonResponse({"order": new.pk, "task": shipping.id})


async def order_async(request: HttpRequest) -> JsonResponse:
    """Enqueue in an async view."""
    result = await add.aenqueue(1, b=2)
    return JsonResponse({"id": result.id})

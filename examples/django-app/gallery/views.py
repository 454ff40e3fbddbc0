from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from gallery.models import Picture
from gallery.tasks import make_thumbnail


@csrf_exempt
@require_POST
@transaction.atomic  # the row and its task, both or neither
def upload(request: HttpRequest) -> HttpResponse:
    file = request.FILES["picture"]
    picture = Picture.objects.create(owner=request.POST["owner"], name=file.name, content=file.read())
    task = make_thumbnail.enqueue(picture.pk)
    return JsonResponse({"id": picture.pk, "task": task.id}, status=201)


def thumbnail(request: HttpRequest, picture_id: int) -> HttpResponse:
    picture = get_object_or_404(Picture, pk=picture_id)
    if picture.thumbnail is None:
        raise Http404
    return HttpResponse(bytes(picture.thumbnail), content_type="image/png")

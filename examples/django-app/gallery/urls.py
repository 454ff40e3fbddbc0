from django.urls import path

from gallery import views

urlpatterns = [
    path("pictures", views.upload),
    path("pictures/<int:picture_id>/thumbnail", views.thumbnail),
]

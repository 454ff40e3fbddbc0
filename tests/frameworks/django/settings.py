"""The settings of the tests: a database of each engine. The fixtures say where they are."""

import django

SECRET_KEY = "of the tests"
DEBUG = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.frameworks.django.shop.urls"
INSTALLED_APPS = [
    *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions", "staticfiles")),
    "dibs.django",
    "tests.frameworks.django.shop",
]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")  # its system check calls the backends
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "", "OPTIONS": {"transaction_mode": "IMMEDIATE"}},
    "postgres": {"ENGINE": "django.db.backends.postgresql", "NAME": ""},
}
DATABASE_ROUTERS = ["tests.frameworks.django.shop.routers.UnderTest"]
TASKS = {"default": {"BACKEND": "dibs.django.DibsBackend", "QUEUES": []}}

# The admin
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
CONTEXT = ("django.template.context_processors.request", "django.contrib.auth.context_processors.auth")
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [*CONTEXT, "django.contrib.messages.context_processors.messages"]},
    }
]
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

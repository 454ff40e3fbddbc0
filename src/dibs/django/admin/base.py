"""The base class of the admin's pages: lists, pages of objects, actions, permissions, errors of the store.

A page reads and changes objects with the verbs of the client, so it works with every store. The models of
`dibs.django.models` have no tables: nothing here queries them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import django
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path

from dibs.client import Dibs
from dibs.django.admin.html import key_of, list_url, nonce_of, object_url
from dibs.django.admin.parts import ListColumn, ListPage, MatchAction, ObjectPage, StoreAction
from dibs.django.author import author
from dibs.django.databases import without_transaction
from dibs.errors import DibsError, InvalidValue, StoreError, StoreUnavailable
from dibs.server.dashboard.texts import shorten, visible

MAX_SELECTED = 500
ROWS = 100
"""Maximum number of rows on a page of a list."""

View = Callable[..., Any]


class StoreAdmin(admin.ModelAdmin):
    """The pages of one kind of objects in dibs' store."""

    columns: ClassVar[Sequence[ListColumn]] = ()
    store_actions: ClassVar[Sequence[StoreAction]] = ()
    match_actions: ClassVar[Sequence[MatchAction]] = ()
    permission_model: ClassVar[Any] = None
    """The model whose permissions apply, if not the model of the pages."""

    plural: ClassVar[str | None] = None
    """The word for several objects, if not the plural name of the model."""

    # What a kind of objects defines

    def read_list(self, request: Any, app: Dibs) -> Any:
        """Return the ListPage, or a response."""
        raise NotImplementedError

    def read_object(self, request: Any, app: Dibs, key: Any) -> ObjectPage:
        """Return the page of the object."""
        raise NotImplementedError

    def key_of_row(self, row: Any) -> Any:
        """Return the id or name of an object."""
        return row.id

    def parse_key(self, key: str) -> Any:
        """Return the id or name that a form or a URL has as text."""
        return key

    def check_filters(self, request: Any) -> None:
        """Raise InvalidValue if the query string has a filter that the list does not have: an action on all matching
        objects would change more of them than the user expects."""

    # Permissions

    def has_permission(self, request: Any, kind: str) -> bool:
        """Return True if the user has the permission: view, add, change or delete. Not every kind has each of them."""
        options = (self.permission_model or self.model)._meta
        exists = kind in options.default_permissions
        return exists and bool(request.user.has_perm(f"{options.app_label}.{kind}_{options.model_name}"))

    def has_view_permission(self, request: Any, obj: Any = None) -> bool:
        """Return True if the user may see the objects."""
        return self.has_permission(request, "view") or self.has_permission(request, "change")

    def has_add_permission(self, request: Any) -> bool:
        """Return True if the user may create objects."""
        return self.has_permission(request, "add")

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Return True if the user may act on the objects."""
        return self.has_permission(request, "change")

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Return True if the user may remove or discard the objects."""
        return self.has_permission(request, "delete")

    # Views

    def get_urls(self) -> list[Any]:
        """Return the URLs of the list and of the page of an object, named as those of any model."""
        name = f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("", self._protected(self.list_view), name=f"{name}_changelist"),
            path("<path:object_id>/change/", self._protected(self.object_view), name=f"{name}_change"),
        ]

    def list_view(self, request: Any) -> Any:
        """Answer a request to the list."""
        return self._answer(request, self._show_list, self._act_on_list)

    def object_view(self, request: Any, object_id: str) -> Any:
        """Answer a request to the page of an object."""
        return self._answer(request, self._show_object, self._act_on_object, object_id)

    def _protected(self, view: View) -> View:
        """Require a sign-in to the admin. No transaction is open around the view: an error of the store would break the
        transaction, and with it the page that reports the error."""
        return without_transaction(self.admin_site.admin_view(view))

    def _answer(self, request: Any, show: View, act: View, *path: str) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            keys = [self.parse_key(key_of(each)) for each in path]
            return (act if request.method == "POST" else show)(request, *keys)
        except DibsError as error:
            return self._failed(request, error)
        except (OperationalError, InterfaceError) as error:  # of Django, on whose connection the store is
            return self._failed(request, StoreUnavailable(shorten(str(error), 300)))

    def _failed(self, request: Any, error: DibsError) -> Any:
        if request.method == "POST":
            self.message_user(request, _words(error), messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())
        context = self._context(request, "Error", message=visible(error.message), hint=visible(error.hint))
        context["unavailable"] = isinstance(error, StoreError)
        return TemplateResponse(request, "admin/dibs/error.html", context, status=status_of(error))

    def _show_list(self, request: Any) -> Any:
        page = self.read_list(request, client_of(request))
        if not isinstance(page, ListPage):
            return page
        rows = [(self.key_of_row(row), [column.cell(row) for column in self.columns]) for row in page.rows]
        context = self._context(
            request,
            str(self.opts.verbose_name_plural).capitalize(),
            is_list=True,
            page=page,
            hidden=_not_typed(page),
            rows=rows,
            headings=[column.heading for column in self.columns],
            actions=self._allowed(request, self.store_actions),
            match_actions=self._allowed(request, self.match_actions) if page.matching else [],
            **page.context,
        )
        return TemplateResponse(request, self.change_list_template or "admin/dibs/list.html", context)

    def _show_object(self, request: Any, key: Any) -> Any:
        page = self.read_object(request, client_of(request), key)
        allowed = [] if page.subject is None else self._allowed(request, self.store_actions)
        actions = [each for each in allowed if each.applies(page.subject)]
        context = self._context(request, page.title, page=page, actions=actions, key=key, **page.context)
        return TemplateResponse(request, page.template, context)

    # Actions

    def _act_on_list(self, request: Any) -> Any:
        name = request.POST.get("action", "")
        if matching := self._named(request, self.match_actions, name):
            return self._act_on_matching(request, matching)
        action = self._named(request, self.store_actions, name)
        keys = [self.parse_key(each) for each in request.POST.getlist("_selected_action")]
        if action is None or not keys:
            self.message_user(request, "Select an action, and the rows to act on.", messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())
        if len(keys) > MAX_SELECTED:
            raise InvalidValue(f"An action takes up to {MAX_SELECTED} rows.")
        if action.confirm and "sure" not in request.POST:
            return self._ask(request, action, keys)
        self.run_action(request, action, keys)
        return HttpResponseRedirect(request.get_full_path())

    def _act_on_matching(self, request: Any, action: MatchAction) -> Any:
        self.check_filters(request)
        if "sure" not in request.POST:
            return self._ask(request, action, [])
        count, more = action.run(client_of(request), request)
        self._log(request, [None], f"{action.past} {self._count(count)}. Filters: {_filters_of(request)}")
        rest = " More may match: repeat the action to continue." if more else ""
        self.message_user(request, f"{action.past} {self._count(count)}.{rest}", messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())

    def _act_on_object(self, request: Any, key: Any) -> Any:
        action = self._named(request, self.store_actions, request.POST.get("action", ""))
        if action is None:
            raise InvalidValue("There is no such action.", hint="Reload the page.")
        if action.confirm and "sure" not in request.POST:
            return self._ask(request, action, [key])
        self.run_action(request, action, [key])
        return HttpResponseRedirect(self.list_address() if action.deletes else request.get_full_path())

    def _named(self, request: Any, actions: Iterable[Any], name: str) -> Any:
        """Return the action with this name; None if there is none. Raises PermissionDenied."""
        found = next((each for each in actions if each.name == name), None)
        if found is not None and not self.has_permission(request, found.permission):
            raise PermissionDenied
        return found

    def _ask(self, request: Any, action: StoreAction | MatchAction, keys: Sequence[Any]) -> Any:
        names = [visible(shorten(str(self.model(pk=key)))) for key in keys]
        context = self._context(request, "Are you sure?", action=action, keys=keys, names=names)
        context["filters"] = _filters_of(request)
        return TemplateResponse(request, "admin/dibs/confirm.html", context)

    def run_action(self, request: Any, action: StoreAction, keys: Sequence[Any]) -> None:
        """Run the action on each of the objects, and tell the user what was done and what was refused."""
        app, done, refused = client_of(request), list[Any](), list[DibsError]()
        for key in keys:
            try:
                action.run(app, key)
                done.append(key)
            except DibsError as error:
                refused.append(error)
                if isinstance(error, StoreError):
                    break
        if done:
            self._log(request, done, action.past, DELETION if action.deletes else CHANGE)
            names = str(self.model(pk=done[0])) if len(done) == 1 else self._count(len(done))
            self.message_user(request, f"{action.past} {shorten(visible(names))}.", messages.SUCCESS)
        for refusal in refused[:3]:
            self.message_user(request, _words(refusal), messages.ERROR)
        if len(refused) > 3:
            self.message_user(request, f"{len(refused) - 3} more were refused.", messages.ERROR)

    def _log(self, request: Any, keys: Sequence[Any], message: str, flag: int = CHANGE) -> None:
        """Write entries of the admin's log. An entry without an object is about several objects."""
        objects = [self.model(pk=key) for key in keys]
        LogEntry.objects.log_actions(request.user.pk, objects, flag, message)

    def _count(self, count: int) -> str:
        plural = self.plural or self.opts.verbose_name_plural
        return f"{count:,} {self.opts.verbose_name if count == 1 else plural}"

    # Pages

    def _context(self, request: Any, title: str, **more: Any) -> dict[str, Any]:
        request.current_app = self.admin_site.name  # links of the templates lead to this site
        shared = self.admin_site.each_context(request)
        layout = {"nonce": nonce_of(request), "has_new_layout": django.VERSION >= (6, 1)}
        return {**shared, **layout, "opts": self.opts, "title": title, "list_address": self.list_address(), **more}

    def _allowed(self, request: Any, actions: Iterable[Any]) -> list[Any]:
        return [each for each in actions if self.has_permission(request, each.permission)]

    def list_address(self, **query: Any) -> str:
        """Return the URL of the list."""
        return list_url(self.admin_site.name, self.model, **query)

    def address(self, model: Any, key: Any) -> str:
        """Return the URL of the page of an object of any kind."""
        return object_url(self.admin_site.name, model, key)


def client_of(request: Any) -> Dibs:
    """Return a client that signs the history with the name of the user."""
    from dibs.django import app

    return app.signed(author(request.user))


def _not_typed(page: ListPage) -> list[tuple[str, str]]:
    """Return the filters that are set and have no text field."""
    typed = {name for name, _, _ in page.fields}
    chosen = {**page.kept, "q": page.search or ""}
    return [(name, value) for name, value in chosen.items() if value and name not in typed]


def status_of(error: DibsError) -> int:
    """Return the HTTP status of a page that reports the error."""
    if isinstance(error, StoreError):
        return 503
    return 404 if isinstance(error, LookupError) else 400


def paged(request: Any, rows: Sequence[Any], **more: Any) -> ListPage:
    """Return a page of rows that are all in memory."""
    text = request.GET.get("p", "1")
    number = int(text) if text.isdecimal() and len(text) < 10 else 1
    last = max(1, -(-len(rows) // ROWS))
    number = min(max(number, 1), last)
    shown = rows[(number - 1) * ROWS : number * ROWS]
    older = f"?p={number + 1}" if number < last else None
    note = f"{len(rows):,} in all" if last > 1 else ""
    return ListPage(shown, older, f"?p={number - 1}" if number > 1 else None, note, **more)


def _filters_of(request: Any) -> str:
    """Return the filters of the query string in words."""
    chosen = (f"{name}: {value}" for name, value in request.GET.items() if value and name != "cursor")
    return visible(shorten(", ".join(chosen), 500)) or "none"


def _words(error: DibsError) -> str:
    return visible(shorten(f"{error.message} {error.hint}".strip(), 500))

"""The list of limits, and the page of a limit with a form to change it; a form for a new limit."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, CHANGE
from django.core.exceptions import PermissionDenied
from django.http import HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path

from dibs.client import Dibs
from dibs.django.admin.base import StoreAdmin, client_of, paged
from dibs.django.admin.html import Html, link, listed, moment, soft, source, text
from dibs.django.admin.parts import ListColumn, ListPage, ListTable, ObjectPage, PageSection, StoreAction
from dibs.django.models import Limit
from dibs.errors import DibsError, LimitNotFound, StoreError
from dibs.model import limit as model
from dibs.model.limit import MAX_PERMITS, PER_GROUP, LimitGroup
from dibs.server.dashboard.texts import shorten, visible

GROUPS = 100

_Row = tuple["LimitAdmin", model.Limit]


class SetLimitForm(forms.Form):
    """The form that sets a limit. The values are checked by dibs when they are stored."""

    name = forms.CharField(max_length=255)
    max = forms.IntegerField(
        required=False, min_value=1, max_value=MAX_PERMITS, label="Maximum", help_text="Tasks that may run at once."
    )
    rate = forms.CharField(required=False, help_text="Tasks that may start in a period, such as 100/minute.")
    burst = forms.IntegerField(
        required=False, min_value=1, max_value=MAX_PERMITS, help_text="Tasks that may start at the same moment."
    )
    per = forms.ChoiceField(
        required=False, label="Applies to", choices=[("", "all tasks together"), (PER_GROUP, "each group")]
    )

    def values(self) -> dict[str, Any]:
        """Return the arguments of `set_limit` beside the name."""
        data = self.cleaned_data
        return {
            "max": data["max"],
            "rate": data["rate"] or None,
            "burst": data["burst"] or 1,
            "per": data["per"] or None,
        }


class LimitAdmin(StoreAdmin):
    """The limits."""

    columns = (
        ListColumn("Limit", lambda row: link(row[0].address(Limit, row[1].name), row[1].name)),
        ListColumn("Used", lambda row: text(f"{row[1].used:,}")),
        ListColumn("Maximum", lambda row: _number(row[1].max)),
        ListColumn("Rate", lambda row: _rate(row[1])),
        ListColumn("Waiting", lambda row: text(f"{row[1].waiting:,}")),
        ListColumn("Applies to", lambda row: text("each group" if row[1].per else "all tasks")),
        ListColumn("Set by", lambda row: source(row[1])),
    )
    store_actions = (
        StoreAction(
            "remove",
            "Remove",
            "Removed",
            "delete",
            Dibs.remove_limit,
            confirm="The tasks that have the limits run without them. A limit that code declares stays removed until "
            "its declaration changes.",
            deletes=True,
        ),
    )

    def get_urls(self) -> list[Any]:
        """Return the URLs of the list, of the page of a limit, and of the form for a new limit."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_add"
        return [path("add/", self._protected(self.add_limit_view), name=name), *super().get_urls()]

    def key_of_row(self, row: _Row) -> str:
        """Return the name of a limit."""
        return row[1].name

    def read_list(self, request: Any, app: Dibs) -> ListPage:
        """Return the limits, by name."""
        add = self.list_address() + "add/" if self.has_add_permission(request) else None
        return paged(request, [(self, limit) for limit in app.limits()], context={"add_address": add})

    def read_object(self, request: Any, app: Dibs, key: str) -> ObjectPage:
        """Return the page of a limit."""
        limit = app.get_limit(key)
        sections = [PageSection("Limit", facts=_facts(limit, app))]
        if groups := app.limit_groups(key, GROUPS):
            table = ListTable(("Group", "Used", "Waiting", "Next start"), [_group(each) for each in groups])
            sections.append(PageSection("Groups", table=table))
        form = _filled(limit) if self.has_change_permission(request) else None
        return ObjectPage(f"Limit {key}", limit, sections, context={"form": form, "form_title": "Change"})

    def add_limit_view(self, request: Any) -> Any:
        """Show the form for a new limit, or store the limit."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = SetLimitForm(request.POST or None)
        if request.method == "POST" and self._store(request, form, ADDITION):
            return HttpResponseRedirect(self.list_address())
        page = ObjectPage("Set a limit", None, [])
        context = self._context(request, page.title, page=page, actions=[], form=form, form_title="New limit")
        return TemplateResponse(request, page.template, context)

    def _act_on_object(self, request: Any, key: str) -> Any:
        """Store the form, or run an action."""
        if request.POST.get("action") != "set":
            return super()._act_on_object(request, key)
        if not self.has_change_permission(request):
            raise PermissionDenied
        form = SetLimitForm({**request.POST.dict(), "name": key})
        if self._store(request, form, CHANGE):
            return HttpResponseRedirect(request.get_full_path())
        page = self.read_object(request, client_of(request), key)
        del form.fields["name"]
        context = self._context(request, page.title, page=page, actions=[], key=key, form=form, form_title="Change")
        return TemplateResponse(request, page.template, context)

    def _store(self, request: Any, form: SetLimitForm, flag: int) -> bool:
        """Store the limit. Returns False, with the errors in the form, if it is not valid."""
        if not form.is_valid():
            return False
        app, name = client_of(request), form.cleaned_data["name"]
        try:
            if flag == ADDITION and _exists(app, name):
                form.add_error("name", "A limit with this name exists: change it on its page.")
                return False
            app.set_limit(name, **form.values())
        except DibsError as error:
            if isinstance(error, StoreError) and flag == CHANGE:
                raise
            form.add_error(None, f"{error.message} {error.hint}")
            return False
        self._log(request, [name], "Set " + ", ".join(f"{key}={value}" for key, value in form.values().items()), flag)
        self.message_user(request, f"Limit {shorten(visible(name))} is set: the next claims obey it.", messages.SUCCESS)
        return True


def _exists(app: Dibs, name: str) -> bool:
    try:
        app.get_limit(name)
    except LimitNotFound:
        return False
    return True


def _number(number: int | None) -> Html:
    return soft("none") if number is None else text(f"{number:,}")


def _rate(limit: model.Limit) -> Html:
    if limit.rate is None:
        return soft("none")
    return text(limit.rate if limit.burst == 1 else f"{limit.rate}, burst {limit.burst:,}")


def _facts(limit: model.Limit, app: Dibs) -> list[tuple[str, Html]]:
    queues = [f"queue {each.queue}" for each in app.queue_settings() if limit.name in each.limits]
    types = [f"type {each.type}" for each in app.type_settings() if limit.name in each.limits]
    return [
        ("Used", text(f"{limit.used:,}")),
        ("Maximum", _number(limit.max)),
        ("Rate", _rate(limit)),
        ("Applies to", text("each group" if limit.per else "all tasks together")),
        ("Waiting tasks", text(f"{limit.waiting:,}")),
        ("Used up since", moment(limit.exhausted_since)),
        (
            "Carried by",
            listed(text(each) for each in [*queues, *types]) if queues or types else text("tasks that name it"),
        ),
        ("Set by", source(limit)),
        ("Changed", moment(limit.updated_at)),
    ]


def _group(group: LimitGroup) -> list[Html]:
    return [text(group.group or "no group"), text(f"{group.used:,}"), text(f"{group.waiting:,}"), moment(group.free_at)]


def _filled(limit: model.Limit) -> SetLimitForm:
    """Return the form with the values of the limit, without the name, which does not change."""
    burst = limit.burst if limit.rate else None
    form = SetLimitForm(initial={"max": limit.max, "rate": limit.rate or "", "burst": burst, "per": limit.per or ""})
    del form.fields["name"]
    return form

"""The filters of lists and searches: a condition in SQL for each.

For a new filter add a field to its filter in `model/search.py`, a condition to FILTERS under the same name, and the
name to the lists below in which it applies. A condition has no user input in its text: values are parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dibs.json_values import encode
from dibs.model.checks import to_micros
from dibs.model.search import DeadFilter, TaskMatch

FILTERS = {
    # Tasks. A search compares the state without an index, because it finds its tasks by their ids.
    "state": "state = :state",
    "state_of_row": "{{unindexed: state}} = :state_of_row",
    "dead": "set_aside IS NULL",
    "type": "type = :type",
    "queue": "queue = :queue",
    "queues": "queue {{in_text: queues}}",
    "key": "key = :key",
    "worker": "worker_id = :worker",
    "since": "created_at >= :since",
    "until": "created_at < :until",
    # Each tag is searched in the stored JSON with its quotation marks, which no tag contains.
    "tags": "NOT EXISTS (SELECT 1 FROM {{text_items: :tags}} WHERE {{strpos}}(coalesce(tags, ''), item.value) = 0)",
    "group": "group_key = :group",
    # A claimed task has its counters in `permits`: a limit, or a limit and a group with a tab between them. Names are
    # compared as JSON writes them: `with_limit` is the name with the first quotation mark.
    "with_limit": (
        "CASE WHEN {{unindexed: state}} = 'claimed' THEN"
        " {{strpos}}(coalesce(permits, ''), CAST(:with_limit AS text) || '\"') > 0"
        " OR {{strpos}}(coalesce(permits, ''), CAST(:with_limit AS text) || '\\t') > 0"
        " ELSE {{strpos}}(coalesce(limits, ''), CAST(:with_limit AS text) || '\"') > 0"
        " OR EXISTS (SELECT 1 FROM dibs_flow_settings AS carrier"
        " WHERE ((carrier.scope = 'queue' AND carrier.name = queue)"
        " OR (carrier.scope = 'type' AND carrier.name = type))"
        " AND {{strpos}}(carrier.limits, CAST(:with_limit AS text) || '\"') > 0) END"
    ),
    "cursor": "id < :cursor",
    "error": "{{strpos}}({{error_text}}, :error) > 0",
    # The text is in the params, as given or as JSON writes it, or in the error. Encoded params (see encoded.py) contain
    # no text. An error is parsed only if a part of the text is somewhere in it, because tracebacks are long.
    "text": (
        "(({{strpos}}(params, :text) > 0 OR {{strpos}}(params, :quoted) > 0)"
        " AND substr(params, 1, 11) <> '{\"$encoded\"'"
        " OR CASE WHEN {{strpos}}(error, :part) > 0 THEN {{strpos}}({{error_text}}, :text) > 0 END)"
    ),
    # Steps: all tasks of the workflow, and of the workflows that it is a part of, are in these queues.
    "only": (
        "EXISTS (SELECT 1 FROM dibs_workflows AS workflow WHERE workflow.id = ("
        "SELECT coalesce(own.root_id, own.id) FROM dibs_workflows AS own WHERE own.id = step.workflow_id)"
        " AND {{all_in_queues}})"
    ),
    # Workflows.
    "workflow_state": "workflow.state = :workflow_state",
    "workflow_name": "workflow.name = :workflow_name",
    "workflow_cursor": "workflow.id < :workflow_cursor",
    "workflow_floor": "workflow.id >= :workflow_floor",
    "workflow_ids": "workflow.id {{in: ids}}",
    "workflow_queues": "{{all_in_queues}}",
}


SEARCH_FILTERS = (
    "dead", "type", "queue", "queues", "key", "worker", "since", "until", "tags", "group", "with_limit", "text",
)  # fmt: skip
LIST_FILTERS = ("state", "dead", "type", "queue", "queues", "error", "tags", "cursor")
DEAD_LETTER_FILTERS = ("queue", "type", "error", "tags")


def filter_params(which: TaskMatch | DeadFilter) -> dict[str, Any]:
    """The fields of a filter as the parameters of its conditions."""
    given = msgspec.structs.asdict(which)
    return {name: _TO_PARAMETER[name](value) if name in _TO_PARAMETER else value for name, value in given.items()}


def quoted_tags(tags: Sequence[str] | None) -> str | None:
    """The parameter of the filter `tags`: each tag in quotation marks, as in the stored JSON."""
    return None if tags is None else encode([f'"{tag}"' for tag in tags])


def _limit_as_json(name: str | None) -> str | None:
    return None if name is None else encode(name)[:-1]


def _micros(time: datetime | None) -> int | None:
    return None if time is None else to_micros(time)


def _list(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


_TO_PARAMETER: dict[str, Callable[[Any], Any]] = {
    "queues": _list,
    "dead": lambda dead: True if dead else None,
    "since": _micros,
    "until": _micros,
    "tags": quoted_tags,
    "with_limit": _limit_as_json,
}


def conditions(given: Mapping[str, Any], names: Sequence[str]) -> tuple[str, str]:
    """The word `conditions`: those of the named filters that are given a value."""
    return "conditions", " ".join(f"AND {FILTERS[name]}" for name in names if given.get(name) is not None)

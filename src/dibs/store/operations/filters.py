"""The filters of lists and searches: a condition in SQL for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    "cursor": "id < :cursor",
    "error": "{{strpos}}({{error_text}}, :error) > 0",
    # The text is in the params, as given or as JSON writes it, or in the error. An error is parsed only if a part of
    # the text is somewhere in it, because tracebacks are long.
    "text": (
        "({{strpos}}(params, :text) > 0 OR {{strpos}}(params, :quoted) > 0"
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


def conditions(given: Mapping[str, Any], names: Sequence[str]) -> tuple[str, str]:
    """The word `conditions`: those of the named filters that are given a value."""
    return "conditions", " ".join(f"AND {FILTERS[name]}" for name in names if given.get(name) is not None)

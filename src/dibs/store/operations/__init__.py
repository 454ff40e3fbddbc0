"""The operations of the SQL engines, composed of parts: each part builds the operations of one subject.

A part yields statements that every engine has under the same name. What differs between engines is in their `Dialect`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from dibs.store.contract import Observer
from dibs.store.operation import Rows
from dibs.store.operations.admission import Admission
from dibs.store.operations.advance import Advance
from dibs.store.operations.change import Change
from dibs.store.operations.claim import Claims
from dibs.store.operations.dialect import Dialect
from dibs.store.operations.enqueue import Enqueue
from dibs.store.operations.finalize import Finalize
from dibs.store.operations.finish import Finish
from dibs.store.operations.flow import RulesCache
from dibs.store.operations.graph import Graph
from dibs.store.operations.history import History
from dibs.store.operations.inspect import Inspect
from dibs.store.operations.keys import Keys
from dibs.store.operations.leases import Leases
from dibs.store.operations.limits import Limits
from dibs.store.operations.logs import Logs
from dibs.store.operations.manage import Manage
from dibs.store.operations.registry import Registry
from dibs.store.operations.retention import Retention
from dibs.store.operations.schedules import Schedules
from dibs.store.operations.search import Search
from dibs.store.operations.statistics import Statistics
from dibs.store.operations.upkeep import Upkeep
from dibs.store.operations.validation import TypeCache
from dibs.store.operations.workflow_views import WorkflowViews
from dibs.store.operations.workflows import Workflows


class SqlOperations:
    """All operations of a store that is an SQL database, by subject. See DatabaseStore for what each promises."""

    def __init__(self, dialect: Dialect, types: TypeCache) -> None:
        self.observer = ReplaceableObserver()
        rules = RulesCache()
        enqueue, advance = Enqueue(dialect, self.observer, rules), Advance(dialect)
        graph = Graph(dialect, advance, self.observer, rules)
        self.upkeep = Upkeep(dialect, advance, self.observer)
        self.claims = Claims(dialect, self.upkeep, Admission(dialect, rules, self.observer))
        views = WorkflowViews()
        self.queue = SqlQueue(enqueue, self.claims, Finish(advance, graph, self.claims, self.observer), Leases())
        self.tasks = SqlTasks(Inspect(rules), Search(), Manage(advance, graph), Change(rules))
        self.history = History()
        self.registry = Registry(types)
        self.workflows = SqlWorkflows(Workflows(advance, graph), graph, views)
        self.finalization = SqlFinalization(Finalize(dialect.finalization(advance)), views)
        self.schedules = Schedules(enqueue)
        self.keys = Keys()
        self.statistics = Statistics(dialect)
        self.retention = Retention()
        self.limits = Limits(rules, dialect)
        self.logs = Logs()


class SqlQueue:
    """The queue of an SQL store. See DatabaseQueue."""

    def __init__(self, enqueue: Enqueue, claims: Claims, finish: Finish, leases: Leases) -> None:
        self.enqueue = enqueue.enqueue
        self.claim = claims.claim
        self.claim_each = claims.claim_each
        self.claim_by_id = claims.claim_by_id
        self.peek = claims.peek
        self.number_random_order = claims.number_random_order
        self.provide_index = claims.provide_index
        self.finish = finish.finish
        self.exchange = finish.exchange
        self.start = leases.start
        self.renew = leases.renew
        self.progress = leases.progress
        self.claim_status = leases.claim_status
        self.checkpoints = leases.checkpoints
        self.keep_checkpoint = leases.keep_checkpoint


class SqlTasks:
    """The tasks of an SQL store. See DatabaseTasks."""

    def __init__(self, inspect: Inspect, search: Search, manage: Manage, change: Change) -> None:
        self.get = inspect.get
        self.get_many = inspect.get_many
        self.states = inspect.states
        self.list_tasks = inspect.list_tasks
        self.queues_of = inspect.queues_of
        self.explain = inspect.explain
        self.find = search.find
        self.search = search.search
        self.change = change.change
        self.change_many = change.change_many
        self.cancel = manage.cancel
        self.cancel_many = manage.cancel_many
        self.retry = manage.retry
        self.retry_many = manage.retry_many
        self.redrive_some = manage.redrive_some
        self.discard = manage.discard
        self.discard_many = manage.discard_many
        self.discard_some = manage.discard_some


class SqlWorkflows:
    """The workflows of an SQL store. See DatabaseWorkflows."""

    def __init__(self, workflows: Workflows, graph: Graph, views: WorkflowViews) -> None:
        self.start_workflow = workflows.start_workflow
        self.add_steps = workflows.add_steps
        self.get_workflow = workflows.get_workflow
        self.list_workflows = workflows.list_workflows
        self.steps = workflows.steps
        self.results = workflows.results
        self.execution = workflows.execution
        self.cancel_workflow = workflows.cancel_workflow
        self.retry_workflow = workflows.retry_workflow
        self.check_parents = graph.check_parents
        self.find_workflows = views.find_workflows
        self.workflow_counts = views.workflow_counts
        self.outline = views.outline
        self.step_states = views.step_states
        self.step_details = views.step_details
        self.step_errors = views.step_errors


class SqlFinalization:
    """The finalizations of an SQL store. See DatabaseFinalization."""

    def __init__(self, finalize: Finalize, views: WorkflowViews) -> None:
        self.execution_context = finalize.execution_context
        self.due_finalizations = finalize.due_finalizations
        self.claim_finalization = finalize.claim_finalization
        self.renew_finalization = finalize.renew_finalization
        self.release_finalization = finalize.release_finalization
        self.finalize = finalize.finalize
        self.finalization_attempts = finalize.finalization_attempts
        self.latest_attempts = views.latest_attempts


class ReplaceableObserver(Observer):
    """Forwards to an observer that can be replaced after the parts were made: a store is metered after it is opened."""

    def __init__(self) -> None:
        self.target = Observer()

    def added(self, queues: Iterable[str]) -> None:
        """Forward."""
        self.target.added(queues)

    def moved(self, rows: Rows, ignored: Container[int] = frozenset()) -> None:
        """Forward."""
        self.target.moved(rows, ignored)

    def waited(self, waits: Iterable[tuple[str, float]]) -> None:
        """Forward."""
        self.target.waited(waits)

"""The tests of other projects that do not apply to dibs, each with its reason. Every other test must pass."""

from __future__ import annotations

REASONS: dict[str, dict[str, tuple[str, ...]]] = {
    "django": {
        "The test is about the base class of backends, with backends of its own.": (
            *(
                f"CustomBackendTestCase.test_{name}"
                for name in (
                    "backend_does_not_support_priority",
                    "enqueue_async_task_on_non_async_backend",
                    "no_enqueue",
                    "options",
                    "using_correct_backend",
                )
            ),
            *(
                f"CustomTaskTestCase.test_custom_task_{name}"
                for name in (
                    "default_values",
                    "invalid_kwarg",
                    "with_custom_values",
                    "with_standard_and_custom_values",
                )
            ),
        ),
        "The test changes a result in the list that `DummyBackend` keeps in memory. In dibs, only the store changes.": (
            "DummyBackendTestCase.test_refresh_result",
            "DummyBackendTestCase.test_refresh_result_async",
        ),
        "The test expects that results cannot be read, or that `run_after` is refused. `DibsBackend` supports both.": (
            "ImmediateBackendTestCase.test_cannot_get_result",
            "ImmediateBackendTestCase.test_cannot_refresh_result",
            "ImmediateBackendTestCase.test_cannot_pass_run_after",
        ),
        "The test expects that the task runs inside `enqueue`, in the thread and the transaction of the caller. "
        "In dibs a worker runs the task, after the commit.": (
            "ImmediateBackendTestCase.test_throws_keyboard_interrupt",
            "ImmediateBackendTransactionTestCase.test_doesnt_wait_until_transaction_commit_by_default",
        ),
    },
    "django-tasks-db": {
        "The test is about the model, the indexes, the admin or the migrations of django-tasks-db.": (
            *(
                f"DatabaseBackendTestCase.test_{name}"
                for name in (
                    "database_backend_app_missing",
                    "index_scan_for_ready",
                    "invalid_task_path",
                    "missing_task_path",
                    "priority_range_check",
                    "run_after_null_0016_migration",
                    "task_name",
                )
            ),
            "AdminTestCase.test_display_run_after_returns_db_value",
            "AdminTestCase.test_display_run_after_returns_empty_for_date_max_or_none",
            "CompatTestCase.test_compat_has_django_task",
        ),
        "The test compares the order of the rows of its model. The order of claims of dibs has tests of its own.": (
            "DatabaseBackendWorkerTestCase.test_run_after_priority",
            "DBTaskResultOrderingTestCase.test_earlier_enqueued_at_comes_first_given_same_priority_and_run_after",
            "DBTaskResultOrderingTestCase.test_earlier_run_after_comes_first_given_same_priority",
            "DBTaskResultOrderingTestCase.test_higher_priority_tasks_come_first",
        ),
        "The test expects a UUID as id, or the option that makes ids. The id of a task of dibs is a number. "
        "Django's suite has the same checks of `enqueue` without a UUID.": (
            "DatabaseBackendTestCase.test_custom_id_function",
            "DatabaseBackendTestCase.test_enqueue_task",
            "DatabaseBackendTestCase.test_enqueue_task_async",
            "DatabaseBackendTestCase.test_postgres_db_id_function",
            "DatabaseBackendTestCase.test_postgres_id_function_expression",
            "DatabaseBackendTestCase.test_unknown_id_function",
        ),
        "The test is about the row locks with which django-tasks-db claims. dibs claims in another way.": (
            "ConnectionExclusiveTranscationTestCase.test_exclusive_transaction",
            "DatabaseBackendWorkerTestCase.test_worker_with_locked_rows",
            *(
                f"DatabaseTaskResultTestCase.test_{name}"
                for name in (
                    "get_locked_with_locked_rows",
                    "lock_no_rows",
                    "locks_tasks",
                    "locks_tasks_filtered",
                    "locks_tasks_filtered_sqlite",
                    "locks_tasks_sqlite",
                )
            ),
        ),
        "The test is about options or the output of the command `db_worker`, which dibs does not have.": tuple(
            f"DatabaseBackendWorkerTestCase.test_{name}"
            for name in (
                "doesnt_process_different_backend",
                "empty_worker_id",
                "exclude_queues_requires_processing_all_queues",
                "excluding_unknown_queue_processes_selected_queues",
                "fractional_interval",
                "incorrect_backend",
                "infinite_interval",
                "max_tasks",
                "negative_interval",
                "negative_max_tasks",
                "process_all_queues_excluding_one_queue",
                "too_long_worker_id",
                "unknown_backend",
                "verbose_logging",
                "zero_interval",
                "zero_max_tasks",
            )
        ),
        "The test expects that a task without a declaration fails. A worker of dibs leaves such a task: another "
        "worker may know the declaration.": (
            "DatabaseBackendWorkerTestCase.test_invalid_task_path",
            "DatabaseBackendWorkerTestCase.test_missing_task_path",
            "DatabaseBackendWorkerTestCase.test_task_import_string",
        ),
        "The test expects another text of the error of `json`. Django's suite has the same check with the text of "
        "Django.": ("DatabaseBackendWorkerTestCase.test_complex_return_value",),
        "The test is about the command `prune_db_task_results`. Workers of dibs delete finished tasks after "
        "their retention time.": tuple(
            f"DatabaseBackendPruneTaskResultsTestCase.test_{name}"
            for name in (
                "doesnt_prune_new_tasks",
                "doesnt_prune_running_tasks",
                "dry_run",
                "failed_min_age",
                "failed_min_age_zero",
                "incorrect_backend",
                "min_age",
                "negative_age",
                "only_prunes_specified_queue",
                "prune_all_queues",
                "prunes_tasks",
                "unknown_backend",
            )
        ),
    },
}
"""Suite -> reason -> names of tests."""

NOT_IN_EVERY_VERSION = "CustomTaskTestCase."
"""The beginning of names that only newer versions of a suite have."""


def left_out(suite: str) -> dict[str, str]:
    """Name of a test -> reason."""
    return {name: reason for reason, names in REASONS[suite].items() for name in names}

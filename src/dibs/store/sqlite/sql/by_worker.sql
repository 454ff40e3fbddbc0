-- A condition of searches: the worker that holds the task, or held it last.
AND worker_id = :worker

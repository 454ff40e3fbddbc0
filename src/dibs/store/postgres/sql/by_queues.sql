-- A condition of list.sql and of the statistics.
AND task.queue = ANY(%(queues)s::text[])

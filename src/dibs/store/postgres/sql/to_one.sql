-- All picked tasks are for one worker. A fragment of claimed.sql; parameters: worker_id, incarnation.
worker_id = %(worker_id)s, incarnation = %(incarnation)s

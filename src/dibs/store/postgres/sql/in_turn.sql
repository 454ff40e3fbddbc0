-- The tasks that `said` names, locked in the order of their ids whatever plan finds them: two statements about the same
-- tasks wait for each other one way round, never in a circle. A fragment. Words: whose, as in complete.sql.
in_turn AS MATERIALIZED (
    SELECT task.id FROM dibs_tasks AS task
    WHERE task.id = ANY(ARRAY(SELECT id FROM said)) {{whose}} ORDER BY task.id FOR NO KEY UPDATE
)

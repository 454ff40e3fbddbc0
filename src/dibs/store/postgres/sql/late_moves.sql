-- Promise: moves.sql, for the entries within these gaps. Parameters: firsts, lasts, limit.
-- Rows: (queue, event, from_state, to_state, count, highest entry). Index: the primary key of the history, once for
-- each gap.
SELECT queue, event, from_state, to_state, count(*), max(id)
FROM (SELECT past.id, past.event, past.from_state, past.to_state,
             (SELECT queue FROM dibs_tasks WHERE id = past.task_id) AS queue
      FROM unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) AS gap (first, last)
      CROSS JOIN LATERAL (SELECT id, task_id, event, from_state, to_state FROM dibs_history
                          WHERE id BETWEEN gap.first AND gap.last) AS past
      ORDER BY past.id LIMIT {{limit}}) AS moved
GROUP BY queue, event, from_state, to_state

-- Promise: workers not heard of for longer than `kept` are forgotten. Parameters: kept, now. Rows: (id).
DELETE FROM dibs_workers WHERE heartbeat_at <= :now - :kept RETURNING id

-- Promise: workers not heard of for longer than `kept` are forgotten. Parameters: kept, now. Rows: (id).
WITH {{moment}}
DELETE FROM dibs_workers USING moment WHERE heartbeat_at <= moment.now - %(kept)s RETURNING id

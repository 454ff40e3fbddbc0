-- Promise: the newest workflows that run, up to a limit. Parameters: limit. Rows: (id). Index: dibs_workflows_running.
SELECT id FROM dibs_workflows WHERE state = 'running' ORDER BY id DESC LIMIT {{limit}}

-- Promise: of these workflows some steps are deleted already: nobody can retry what is left. Parameters: ids. Rows: none.
UPDATE dibs_workflows SET stopping = 'pruned' WHERE id IN (SELECT value FROM json_each(:ids))

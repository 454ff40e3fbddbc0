-- Promise: this tree of workflows is gone. Parameters: id (the root's). Rows: none.
DELETE FROM dibs_workflows WHERE id = :id OR root_id = :id

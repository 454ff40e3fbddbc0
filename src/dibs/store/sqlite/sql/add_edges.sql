-- Promise: each child waits for its parent. Parameters: of each parent_id, child_id. Rows: none.
INSERT INTO dibs_edges (parent_id, child_id) VALUES (:parent_id, :child_id)

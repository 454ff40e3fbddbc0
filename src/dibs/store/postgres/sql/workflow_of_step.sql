-- Promise: the sub-workflow that this step stands for. Parameters: id. Rows: (id).
SELECT id FROM dibs_workflows WHERE step_of = %(id)s

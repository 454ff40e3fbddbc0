-- Promise: the claim is extended, if this processor has it. Parameters: id, processor, lease, now.
-- Rows: (token, lease_until); none if it has not. A lease that ran out is extended too, if nobody took over.
WITH {{moment}}
UPDATE dibs_workflows AS workflow SET finalization_until = moment.now + %(lease)s
FROM moment
WHERE workflow.id = %(id)s AND workflow.finalization_by = %(processor)s AND workflow.state = 'running'
RETURNING workflow.finalization_token, workflow.finalization_until

-- Promise: every retention rule that is set. Rows: (records, scope, name, kept, changed_at, changed_by), in any order.
SELECT records, scope, name, kept, changed_at, changed_by FROM dibs_retention

-- Promise: the samples from this moment on, in order, each without its queues, which come last in it: they are nine tenths
-- of the text, and a chart of the whole needs none of them. Parameters: at. Rows: (at, head). Index: the primary key.
SELECT at, split_part(body, ',"queues":', 1) FROM dibs_samples WHERE at >= %(at)s ORDER BY at

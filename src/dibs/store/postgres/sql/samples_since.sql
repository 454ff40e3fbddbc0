-- Promise: the samples from this moment on, in order. Parameters: at. Rows: (at, body). Index: the primary key.
SELECT at, body FROM dibs_samples WHERE at >= %(at)s ORDER BY at

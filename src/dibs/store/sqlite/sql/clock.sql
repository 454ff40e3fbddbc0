-- Promise: the database's time. Rows: (now), microseconds.
SELECT :now

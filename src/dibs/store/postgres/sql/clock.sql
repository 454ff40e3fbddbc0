-- Promise: the database's time. Rows: (now), microseconds.
WITH {{moment}} SELECT now FROM moment

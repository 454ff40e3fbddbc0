-- The lines in which tasks may wait without a number: those that do not race yet, those that are being drawn, and those
-- that are to be gone through once more (see draw.sql). A fragment. Parameters: kind.
undrawn AS MATERIALIZED (
    SELECT lines.queue, lines.type, lines.attempts_left
    FROM lines
    LEFT JOIN dibs_races AS race ON race.queue = lines.queue AND race.type = lines.type
        AND race.attempts_left = lines.attempts_left AND race.kind = %(kind)s
    WHERE race.kind IS NULL OR race.drawn_to IS NOT NULL
       OR race.settles_after < pg_snapshot_xmin(pg_current_snapshot())
)

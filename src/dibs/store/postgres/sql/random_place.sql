-- A fresh place in the random race of the line that has this many attempts left: where the race stands now, plus an
-- exponential draw. A fragment; see candidates_race.sql.
coalesce((SELECT position FROM dibs_races AS race
          WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
            AND race.kind = 'random'), 0) + -ln(1 - random())

-- A fresh place in the two races of the line that has this many attempts left: where the race stands now, plus an
-- exponential draw, with the task's weight as its rate in the weighted race. A fragment; see pick_race.sql.
random_key = coalesce((SELECT position FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'random'), 0) + dibs_exponential(),
weighted_key = coalesce((SELECT position FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'weighted'), 0) + dibs_exponential() / max(priority + 1, 1)

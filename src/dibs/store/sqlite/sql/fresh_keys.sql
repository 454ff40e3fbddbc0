-- A fresh place in the two races of the line that has this many attempts left: where the race stands now, plus an
-- exponential draw, with the task's weight as its rate in the weighted race; none where the line does not race. A
-- fragment; see pick_race.sql.
random_key = (SELECT position + dibs_exponential() FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'random'),
weighted_key = (SELECT position + dibs_exponential() / max(dibs_tasks.priority + 1, 1) FROM dibs_races AS race
    WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}
      AND race.kind = 'weighted')

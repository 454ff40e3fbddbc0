-- A fresh place in the weighted race of the line that has this many attempts left: where the race stands now, plus
-- an exponential draw with the task's weight as its rate. A fragment; see pick_weighted.sql.
coalesce((SELECT position FROM dibs_races AS race
          WHERE race.queue = dibs_tasks.queue AND race.type = dibs_tasks.type AND race.attempts_left = {{argument}}), 0)
    + dibs_exponential() / max(priority + 1, 1)

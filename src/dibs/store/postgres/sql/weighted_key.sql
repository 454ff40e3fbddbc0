-- A fresh place in the weighted race of the line that has this many attempts left: where the race stands now, plus
-- an exponential draw with the task's weight as its rate. A fragment; see candidates_weighted.sql.
coalesce((SELECT position FROM dibs_races AS race
          WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}), 0)
    + -ln(1 - random()) / greatest(task.priority::bigint + 1, 1)

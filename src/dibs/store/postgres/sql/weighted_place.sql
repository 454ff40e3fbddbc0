-- A fresh place in the weighted race, with the task's weight as the rate of its draw. A fragment; see random_place.sql.
(SELECT race.position - ln(1 - random()) / greatest(task.priority::bigint + 1, 1) FROM dibs_races AS race
 WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
   AND race.kind = 'weighted')

-- A fresh place in the random race of the line that has this many attempts left: where the race stands now, plus an
-- exponential draw; none where the line does not race. A fragment; see candidates_race.sql.
(SELECT race.position - ln(1 - random()) FROM dibs_races AS race
 WHERE race.queue = task.queue AND race.type = task.type AND race.attempts_left = {{argument}}
   AND race.kind = 'random')

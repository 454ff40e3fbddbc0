-- A condition of searches: the text stands in the params (as it is, or as JSON writes it) or in the error's type and
-- message. An error is parsed only if a part of the text stands somewhere in it: tracebacks are long.
AND (strpos(task.params, %(text)s) > 0 OR strpos(task.params, %(quoted)s) > 0
     OR CASE WHEN strpos(task.error, %(part)s) > 0
             THEN strpos((task.error::json ->> 'type') || ': ' || (task.error::json ->> 'message'), %(text)s) > 0 END)

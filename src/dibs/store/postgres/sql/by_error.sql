-- A condition of redrive.sql: the text stands in the error's type and message.
AND strpos((task.error::json ->> 'type') || ': ' || (task.error::json ->> 'message'), %(error)s) > 0

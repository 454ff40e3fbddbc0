-- A condition of redrive.sql: the text stands in the error's type and message.
AND instr(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'), :error) > 0

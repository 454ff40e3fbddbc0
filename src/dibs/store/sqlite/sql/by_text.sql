-- A condition of searches: the text stands in the params (as it is, or as JSON writes it) or in the error's type and
-- message. An error is parsed only if a part of the text stands somewhere in it: tracebacks are long.
AND (instr(params, :text) > 0 OR instr(params, :quoted) > 0
     OR CASE WHEN instr(error, :part) > 0
             THEN instr(json_extract(error, '$.type') || ': ' || json_extract(error, '$.message'), :text) > 0 END)

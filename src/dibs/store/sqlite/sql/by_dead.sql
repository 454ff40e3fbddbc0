-- A condition of lists and searches of the dead letter, beside that of the state.
AND set_aside IS NULL

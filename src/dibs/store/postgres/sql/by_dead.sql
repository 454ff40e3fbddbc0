-- A condition of lists and searches of the dead letter, beside that of the state.
AND task.set_aside IS NULL

-- Where SQLite keeps the highest id of the tasks. The schema is named, because the temporary tables of a connection have
-- such a table as well, which hides the one of the file; joined.py names another schema where the tasks are elsewhere.
main.sqlite_sequence

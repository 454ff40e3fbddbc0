-- Promise: all statements of this transaction, of which it is the first, see the database as it is now. Read only, so
-- that it can never fail for what others write. Rows: none.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- The state of a row that is looked up by its id, in a form that no partial index matches: such a look-up must go by
-- the primary key. A plan made while the queue was empty would otherwise walk through a whole partial index once it
-- is full. A fragment.
(state || '') = {{argument}}

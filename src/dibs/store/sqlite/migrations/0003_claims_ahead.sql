-- Claims ahead of their turn: a task that waits in its worker's memory is not charged an attempt when the worker dies.
-- compatible: 2
--
-- ahead: claimed ahead of its turn, and not known to be started; true only while the task is claimed.
-- dropped: how often its worker was lost while it was claimed ahead. Code that does not know the two claims everything
-- in its turn, which is what their defaults say.

ALTER TABLE dibs_tasks ADD COLUMN ahead INTEGER NOT NULL DEFAULT 0;
ALTER TABLE dibs_tasks ADD COLUMN dropped INTEGER NOT NULL DEFAULT 0;

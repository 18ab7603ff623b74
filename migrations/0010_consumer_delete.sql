-- Deleting consumers.
--
-- Locks: ALTER TABLE takes ACCESS EXCLUSIVE on consumers for the moment it needs to add a column
-- without a default; the table is small.

-- When somebody deleted it; null is a consumer that there is. The row stays: what was accepted for it
-- refers to it until its retention is over. To add the same id again sets this back to null.
ALTER TABLE hooklane.consumers ADD COLUMN deleted_at timestamptz;

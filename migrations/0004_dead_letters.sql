-- Finding what failed: to put it into DLQ, to list it, to replay it.
--
-- Locks: ALTER TABLE takes ACCESS EXCLUSIVE on deliveries and its day partitions for the moment it
-- needs to add columns without a default. Each index is built under SHARE, partition by partition:
-- reads go on, writes wait for as long as it takes to read the deliveries once. Intake and recording
-- catch up afterwards.

ALTER TABLE hooklane.deliveries
    -- Where the dead letter stands in the stream DLQ, as of dead_lettered_at.
    ADD COLUMN dead_letter bigint,
    -- Somebody wants no dead letter of it any more.
    ADD COLUMN discarded_at timestamptz;

-- By the time of failing, for people. A delivery gets its entry when it fails and never before, so
-- that one which is sent costs nothing here. That the time is not null goes without saying; said, it
-- keeps who looks for what is not in DLQ yet from this index, in which that can't be found: on a day
-- that is still empty both look alike to the planner.
CREATE INDEX deliveries_failed ON hooklane.deliveries (settled_at, message_id, endpoint_id)
    WHERE status = 'failed' AND discarded_at IS NULL AND settled_at IS NOT NULL;
-- What is not in DLQ yet, or was put into one that is gone since.
CREATE INDEX deliveries_dead_letters ON hooklane.deliveries (dead_lettered_at)
    WHERE status = 'failed' AND discarded_at IS NULL;

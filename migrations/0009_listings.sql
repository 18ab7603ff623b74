-- Finding messages by their consumer, attempts by their endpoint, and endpoints that fail.
--
-- Locks: each index is built under SHARE, on messages and attempts partition by partition: reads go
-- on, writes wait for as long as it takes to read the table once. Intake and recording catch up
-- afterwards. The table of endpoints is small.

-- One consumer's messages, the last first.
CREATE INDEX messages_by_consumer ON hooklane.messages (consumer_id, accepted_at DESC, id DESC);

-- Attempts by when they started, with whose they are: one endpoint's are found by walking back in time
-- without looking at the others' rows. An index with the endpoint first would find them at once, and
-- cost the recorder more: it writes all over it, and to the end of this one.
CREATE INDEX attempts_recent ON hooklane.attempts (started_at, endpoint_id);

-- The endpoints that fail, of the whole account: few.
CREATE INDEX endpoints_failing ON hooklane.endpoints (id) WHERE state = 'failing';

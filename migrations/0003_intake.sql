-- What intake and the route publisher remember.
--
-- Locks: ALTER TABLE takes ACCESS EXCLUSIVE on rejected_events for the moment it needs to add
-- columns without a default; the index is built under SHARE. The table is small.

-- An event whose consumer or event type is not known yet waits here and is tried again until
-- then; only afterwards it counts as rejected.
ALTER TABLE hooklane.rejected_events ADD COLUMN waiting_until timestamptz;

-- Finding what is to be tried again: what waits, and what somebody requeued.
CREATE INDEX rejected_events_open ON hooklane.rejected_events (id)
    WHERE waiting_until IS NOT NULL OR requeued_at IS NOT NULL;
CREATE INDEX rejected_events_age ON hooklane.rejected_events (rejected_at);

-- Which settings bucket endpoints.routed_version speaks of: one made anew has to be filled anew.
CREATE TABLE hooklane.route_bucket (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    created_at timestamptz NOT NULL
);

-- Recovery in the background: what is to be delivered again, and how far that has come.
--
-- Locks: the table is new. The index on deliveries is built under SHARE, partition by partition:
-- reads go on, writes wait for as long as it takes to read the deliveries once. Intake and recording
-- catch up afterwards.

CREATE TYPE hooklane.task_status AS ENUM ('waiting', 'running', 'done', 'cancelled', 'failed');

-- One row a task. A step makes deliveries due and moves the row on in one transaction, so that a
-- step that was cut off did nothing, and one that was not is never repeated.
CREATE TABLE hooklane.tasks (
    id          uuid PRIMARY KEY,
    kind        text NOT NULL CHECK (kind IN ('retry', 'replay', 'recover', 'replay_missing')),
    consumer_id text NOT NULL,
    -- What it is about: a message and an endpoint, a message, or an endpoint and a time.
    message_id  uuid,
    endpoint_id uuid,
    since       timestamptz,
    -- Never after the task began: what it makes due may end the same way, and must not be found
    -- again.
    until       timestamptz,
    status      hooklane.task_status NOT NULL DEFAULT 'waiting',
    -- The last delivery that it has seen, in the order of its kind.
    at_time     timestamptz,
    at_id       uuid,
    -- Deliveries that there were to look at when it began; null where counting took too long.
    total       bigint,
    -- Those that it has looked at, and of them those that it made due.
    found       bigint NOT NULL DEFAULT 0,
    due         bigint NOT NULL DEFAULT 0,
    -- The others, by reason: {"paused": 3}.
    refused     jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz,
    -- When it may go on; the one that waits longest goes first.
    turn_at     timestamptz NOT NULL,
    -- Failures since the last good step, and what the last of them said.
    failures    integer NOT NULL DEFAULT 0,
    error       text,
    CHECK (CASE kind WHEN 'retry' THEN message_id IS NOT NULL AND endpoint_id IS NOT NULL
                     WHEN 'replay' THEN message_id IS NOT NULL
                     ELSE endpoint_id IS NOT NULL AND since IS NOT NULL AND until IS NOT NULL END)
) WITH (fillfactor = 50);
CREATE INDEX tasks_open ON hooklane.tasks (turn_at, id) WHERE status IN ('waiting', 'running');
CREATE INDEX tasks_ended ON hooklane.tasks (ended_at) WHERE ended_at IS NOT NULL;

-- Finding what an endpoint missed, by when. A delivery gets its entry when it is skipped and never
-- before, so that one which is sent costs nothing here.
CREATE INDEX deliveries_skipped ON hooklane.deliveries (endpoint_id, settled_at, message_id)
    WHERE status = 'skipped';

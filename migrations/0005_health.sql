-- Endpoint health, auto-disable, and what operators are told.
--
-- Locks: ALTER TABLE takes ACCESS EXCLUSIVE on endpoints for the moment it needs to add a column
-- without a default and to drop two that only the commands of the release before read; the table
-- is small. Everything else is new.

-- Whether a failing endpoint is disabled after some time; null takes the deployment's setting.
ALTER TABLE hooklane.endpoints ADD COLUMN auto_disable boolean;

-- What attempts say about an endpoint. A row comes with the first failure and whoever changes an
-- endpoint's state locks it first, so an endpoint that is well costs nothing, and failures never
-- write to the row that acceptance reads.
CREATE TABLE hooklane.endpoint_health (
    endpoint_id          uuid PRIMARY KEY,
    -- Failures since the last success.
    consecutive_failures integer NOT NULL DEFAULT 0,
    -- When the first and the last of them started.
    failing_since        timestamptz,
    last_failure_at      timestamptz,
    -- What started until then no longer counts: a success or a resume came after it.
    forgotten_until      timestamptz,
    -- Failures of the hour that begins then, of the hour before it, and so on for a day.
    hour                 timestamptz,
    hourly               integer[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

INSERT INTO hooklane.endpoint_health (endpoint_id, consecutive_failures, failing_since, last_failure_at)
SELECT id, consecutive_failures, failing_since, failing_since
  FROM hooklane.endpoints WHERE consecutive_failures > 0 AND failing_since IS NOT NULL;

ALTER TABLE hooklane.endpoints DROP COLUMN consecutive_failures, DROP COLUMN failing_since;

-- What happened to endpoints and deliveries, for operators: an outbox of Hooklane's own, written in
-- the transaction of what happened and relayed like any other.
CREATE TABLE hooklane.operational_events (
    id              uuid PRIMARY KEY,
    -- The order of insertion. The relay's horizon rests on CACHE 1 and on nobody else assigning it.
    position        bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    consumer_id     text NOT NULL DEFAULT 'hooklane' CHECK (consumer_id = 'hooklane'),
    event_type      text NOT NULL,
    -- What may be noticed twice is written once.
    idempotency_key text UNIQUE,
    payload         json NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    processed_at    timestamptz
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.0, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX operational_events_pending ON hooklane.operational_events (position) WHERE processed_at IS NULL;
CREATE INDEX operational_events_processed ON hooklane.operational_events (processed_at) WHERE processed_at IS NOT NULL;

-- The built-in consumer, whose endpoints are the operators' own, and what it is told.
INSERT INTO hooklane.consumers (id, name) VALUES ('hooklane', 'Operational events')
ON CONFLICT (id) DO NOTHING;
INSERT INTO hooklane.event_types (name, description) VALUES
    ('hooklane.endpoint.failing', 'An endpoint fails: five failures in a row, or a delivery out of retries.'),
    ('hooklane.endpoint.recovered', 'A failing endpoint took a delivery.'),
    ('hooklane.endpoint.paused', 'Somebody paused an endpoint.'),
    ('hooklane.endpoint.resumed', 'Somebody resumed an endpoint.'),
    ('hooklane.endpoint.disabled', 'An endpoint answered 410, or failed for too long.'),
    ('hooklane.endpoint.deleted', 'Somebody deleted an endpoint.'),
    ('hooklane.delivery.exhausted', 'A delivery failed: out of retries, or past its deadline.'),
    ('hooklane.delivery.dead_lettered', 'A failed delivery was put into the dead letters.')
ON CONFLICT (name) DO NOTHING;

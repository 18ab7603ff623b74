-- The ledger: what was accepted, for whom, and what became of it.
--
-- Locks: creates new objects only; takes no lock on anything that exists.

CREATE SCHEMA IF NOT EXISTS hooklane;

-- The public catalogue of what can happen.
CREATE TABLE hooklane.event_types (
    name        text PRIMARY KEY,
    description text NOT NULL DEFAULT '',
    schema      json,
    example     json,
    deprecated  boolean NOT NULL DEFAULT false,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The adopter's customers, under the adopter's own ids.
CREATE TABLE hooklane.consumers (
    id           text PRIMARY KEY CHECK (id ~ '^[A-Za-z0-9_-]{1,64}$'),
    name         text NOT NULL DEFAULT '',
    default_rate integer CHECK (default_rate BETWEEN 1 AND 1000),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Every change of an endpoint takes a version; readers keep the highest.
CREATE SEQUENCE hooklane.endpoint_version;

CREATE TYPE hooklane.endpoint_state AS ENUM ('active', 'failing', 'paused', 'disabled', 'deleted');

CREATE TABLE hooklane.endpoints (
    id                   uuid PRIMARY KEY,
    consumer_id          text NOT NULL REFERENCES hooklane.consumers,
    url                  text NOT NULL,
    description          text NOT NULL DEFAULT '',
    -- '*', exact names, or prefixes such as 'invoice.*'.
    filters              text[] NOT NULL CHECK (cardinality(filters) > 0),
    -- Attempts a second; null takes the consumer's default, then the deployment's; 0 is no limit.
    rate                 integer CHECK (rate BETWEEN 0 AND 1000),
    -- Null is the rate.
    burst                integer CHECK (burst BETWEEN 1 AND 1000),
    concurrency          integer NOT NULL DEFAULT 16 CHECK (concurrency BETWEEN 1 AND 256),
    timeout_ms           integer NOT NULL DEFAULT 15000 CHECK (timeout_ms BETWEEN 1000 AND 60000),
    -- A JSON object of names and values, sealed: values may be credentials.
    headers              bytea,
    state                hooklane.endpoint_state NOT NULL DEFAULT 'active',
    consecutive_failures integer NOT NULL DEFAULT 0,
    failing_since        timestamptz,
    held_until           timestamptz,
    version              bigint NOT NULL DEFAULT nextval('hooklane.endpoint_version'),
    -- The version that the lanes' settings bucket holds; differs until it is published.
    routed_version       bigint,
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at           timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX endpoints_by_consumer ON hooklane.endpoints (consumer_id) WHERE state <> 'deleted';
CREATE INDEX endpoints_unrouted ON hooklane.endpoints (version) WHERE routed_version IS DISTINCT FROM version;

-- Signing secrets, sealed. The newest signs first; older ones sign along until they expire.
CREATE TABLE hooklane.endpoint_secrets (
    endpoint_id uuid NOT NULL REFERENCES hooklane.endpoints ON DELETE CASCADE,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed      bytea NOT NULL,
    -- Null for the current one.
    expires_at  timestamptz,
    PRIMARY KEY (endpoint_id, created_at)
);
CREATE UNIQUE INDEX endpoint_secrets_current ON hooklane.endpoint_secrets (endpoint_id) WHERE expires_at IS NULL;

-- One row: proves that the configured master key is the one that sealed what is here.
CREATE TABLE hooklane.master_key_check (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    sealed    bytea NOT NULL
);

-- Accepted events. Partitioned by day, made ahead of time and on demand.
CREATE TABLE hooklane.messages (
    accepted_at  timestamptz NOT NULL,
    id           uuid NOT NULL,
    consumer_id  text NOT NULL,
    event_type   text NOT NULL,
    -- The exact bytes: a signature covers bytes, so json or jsonb would not do.
    payload      bytea NOT NULL,
    content_type text NOT NULL DEFAULT 'application/json',
    -- 'outbox:<source>', 'intake' or 'api'.
    source       text NOT NULL,
    idempotency_key text,
    traceparent  text,
    tracestate   text,
    PRIMARY KEY (accepted_at, id)
) PARTITION BY RANGE (accepted_at);
CREATE INDEX messages_by_id ON hooklane.messages (id);
ALTER TABLE hooklane.messages ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TYPE hooklane.delivery_status AS ENUM
    ('received', 'stalled', 'skipped', 'failed', 'cancelled', 'sent');

-- Where a status stands in the merge of records: the higher one stays.
CREATE FUNCTION hooklane.status_rank(hooklane.delivery_status) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT (CASE $1 WHEN 'sent' THEN 4 WHEN 'cancelled' THEN 3 WHEN 'failed' THEN 2
                          WHEN 'skipped' THEN 1 ELSE 0 END)::smallint $$;

-- One row per message per endpoint subscribed at acceptance.
CREATE TABLE hooklane.deliveries (
    accepted_at      timestamptz NOT NULL,
    message_id       uuid NOT NULL,
    endpoint_id      uuid NOT NULL,
    consumer_id      text NOT NULL,
    -- Subject partition of the consumer.
    partition        smallint NOT NULL,
    status           hooklane.delivery_status NOT NULL,
    series           integer NOT NULL DEFAULT 1,
    drive            integer NOT NULL DEFAULT 1,
    -- How the drive ended: 0 under way, 1 parked, 2 attempted.
    settled          smallint NOT NULL DEFAULT 0,
    driven_at        timestamptz NOT NULL,
    not_after        timestamptz NOT NULL,
    attempt_count    integer NOT NULL DEFAULT 0,
    -- Attempts that count against the schedule, in this series.
    counted          integer NOT NULL DEFAULT 0,
    next_attempt_at  timestamptz NOT NULL,
    deadline         timestamptz NOT NULL,
    faults           integer NOT NULL DEFAULT 0,
    last_status      smallint,
    last_error       text,
    failure_reason   text,
    settled_at       timestamptz,
    dead_lettered_at timestamptz,
    PRIMARY KEY (accepted_at, message_id, endpoint_id)
) PARTITION BY RANGE (accepted_at);
-- Finding due work of one endpoint, oldest due first.
CREATE INDEX deliveries_stalled ON hooklane.deliveries (endpoint_id, next_attempt_at)
    WHERE status = 'stalled';
-- Failing what waits past its deadline.
CREATE INDEX deliveries_deadline ON hooklane.deliveries (deadline) WHERE status = 'stalled';
-- Finding what the broker lost, partition by partition.
CREATE INDEX deliveries_received ON hooklane.deliveries (partition, not_after)
    WHERE status = 'received';
-- A message's deliveries are found by the message's accepted_at and id, in the primary key: every
-- update of a delivery changes its status, so every index here is written to a second time.

-- Which endpoints have work in the ledger, and when the earliest is due: never later than the
-- truth, so that finding due work costs the number of due endpoints and not of rows.
CREATE TABLE hooklane.backlogs (
    endpoint_id uuid PRIMARY KEY,
    consumer_id text NOT NULL,
    partition   smallint NOT NULL,
    due_at      timestamptz NOT NULL,
    -- When the earliest accepted of them was accepted, or earlier: leaves out the days before.
    accepted_from timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX backlogs_due ON hooklane.backlogs (due_at);

-- Every attempt made. Append-only.
CREATE TABLE hooklane.attempts (
    started_at   timestamptz NOT NULL,
    id           uuid NOT NULL,
    accepted_at  timestamptz NOT NULL,
    message_id   uuid NOT NULL,
    endpoint_id  uuid NOT NULL,
    series       integer NOT NULL,
    drive        integer NOT NULL,
    number       integer NOT NULL,
    duration_us  bigint NOT NULL,
    status       smallint,
    headers      json,
    body         bytea,
    error        text,
    detail       text,
    verdict      text NOT NULL,
    traceparent  text,
    PRIMARY KEY (started_at, id)
) PARTITION BY RANGE (started_at);
CREATE INDEX attempts_by_message ON hooklane.attempts (message_id, endpoint_id);

-- What each key stood for, for seven days.
CREATE TABLE hooklane.idempotency_keys (
    consumer_id text NOT NULL,
    key         text NOT NULL,
    -- SHA-256 of event type, content type and payload.
    digest      bytea NOT NULL,
    message_id  uuid NOT NULL,
    accepted_at timestamptz NOT NULL,
    PRIMARY KEY (consumer_id, key)
);
CREATE INDEX idempotency_keys_age ON hooklane.idempotency_keys (accepted_at);

-- What could not be accepted from an outbox or from INTAKE: listed, and requeued by hand.
CREATE TABLE hooklane.rejected_events (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- 'outbox:<source>' or 'intake'.
    source          text NOT NULL,
    -- The outbox row's id, or the INTAKE message's stream creation and sequence.
    source_id       text NOT NULL,
    consumer_id     text,
    event_type      text,
    idempotency_key text,
    content_type    text,
    -- Null where it was too large to keep, or absent.
    payload         bytea,
    traceparent     text,
    tracestate      text,
    reason          text NOT NULL,
    detail          text NOT NULL DEFAULT '',
    rejected_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    requeued_at     timestamptz,
    UNIQUE (source, source_id)
);

-- Makes the day partitions of a time, where they don't exist. Concurrent callers wait for each
-- other on an advisory lock. A table is made first and attached then: that takes SHARE UPDATE
-- EXCLUSIVE on the parent, beside which reads and writes go on, where CREATE TABLE ... PARTITION OF
-- would take ACCESS EXCLUSIVE.
CREATE FUNCTION hooklane.ensure_day(at timestamptz) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    day date := (at AT TIME ZONE 'UTC')::date;
    lower_bound timestamptz := day::timestamp AT TIME ZONE 'UTC';
    upper_bound timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    parent text;
    child text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['messages', 'deliveries', 'attempts'] LOOP
        child := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
        CONTINUE WHEN to_regclass(format('hooklane.%I', child)) IS NOT NULL;
        PERFORM pg_advisory_xact_lock(7261001, 1);
        -- Not to_regclass: it may still know from before the wait that there is none.
        CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_class
                               WHERE relname = child AND relnamespace = 'hooklane'::regnamespace);
        EXECUTE format('CREATE TABLE hooklane.%I (LIKE hooklane.%I INCLUDING ALL)', child, parent);
        IF parent = 'deliveries' THEN
            EXECUTE format('ALTER TABLE hooklane.%I SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)', child);
        END IF;
        EXECUTE format('ALTER TABLE hooklane.%I ATTACH PARTITION hooklane.%I FOR VALUES FROM (%L) TO (%L)',
            parent, child, lower_bound, upper_bound);
    END LOOP;
END $$;

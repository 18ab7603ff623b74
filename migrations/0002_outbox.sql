-- The outbox table that producers write to, in the transaction of their business change.
--
-- Locks: creates new objects only. This file is also what `hooklane migrate --source` applies to
-- a producer's own database, where nothing else of the ledger exists.

CREATE SCHEMA IF NOT EXISTS hooklane;

CREATE TABLE hooklane.outbox_events (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type  varchar(50),
    aggregate_id    uuid,
    event_type      varchar(100) NOT NULL,
    -- json and not jsonb: json keeps the text as it was written, jsonb would reorder keys, fold
    -- duplicates and rewrite numbers, and the webhook carries what was written.
    payload         json NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    -- Null until the ledger has taken the event.
    processed_at    timestamptz,
    -- The order of insertion. The relay's horizon rests on CACHE 1 and on nobody else assigning it.
    position        bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    consumer_id     text NOT NULL,
    idempotency_key text,
    -- Trace context: {"traceparent": "…", "tracestate": "…"}.
    headers         json
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.0, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX outbox_events_pending ON hooklane.outbox_events (position) WHERE processed_at IS NULL;
CREATE INDEX outbox_events_processed ON hooklane.outbox_events (processed_at) WHERE processed_at IS NOT NULL;

-- Optional wake-up, off unless the trigger below is enabled: at most one transaction in flight
-- notifies, so that notifying commits never queue on each other.
CREATE FUNCTION hooklane.outbox_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_try_advisory_xact_lock(7261002, 1) THEN
        PERFORM pg_notify('hooklane_outbox', '');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_wake AFTER INSERT ON hooklane.outbox_events
    FOR EACH STATEMENT EXECUTE FUNCTION hooklane.outbox_wake();
ALTER TABLE hooklane.outbox_events DISABLE TRIGGER outbox_wake;

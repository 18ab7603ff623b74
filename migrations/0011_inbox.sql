-- The inbox: what partners sent, in which order it took effect, and how it is handed off.
--
-- Locks: everything is new but for one function that is replaced, which locks no table. The days that
-- there are already get their partition of inbox_bodies when something of theirs is written.

-- One row an event that a partner sent: (partner_name, partner_event_id) makes its repetitions
-- harmless. Not partitioned, because a unique index of a partitioned table would have to contain the
-- time; the bodies, which are nearly all of it, are.
CREATE TABLE hooklane.webhook_inbox (
    id                 uuid PRIMARY KEY,
    partner_name       varchar(50) NOT NULL,
    partner_event_id   varchar(100) NOT NULL,
    signature_verified boolean NOT NULL,
    status             varchar(20) NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'DEFERRED', 'PROCESSED', 'QUARANTINED', 'SUPERSEDED', 'DISCARDED')),
    received_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When it was handed off, superseded or discarded.
    processed_at       timestamptz,
    event_type         text,
    body_sha256        bytea NOT NULL CHECK (octet_length(body_sha256) = 32),
    body_bytes         integer NOT NULL,
    -- Whether the signature covers the id. One that it does not cover is whatever a replay says.
    id_signed          boolean NOT NULL,
    -- An event with an id of its own and the same body, that came before.
    same_body_as       uuid,
    -- What the signature covers: 'full', or 'partial: ' and what it does not.
    integrity          text NOT NULL,
    -- Which of the source's secrets verified it.
    key_label          text,
    -- The request that it is an item of.
    parent             uuid,
    -- What is to be done with it: 'decide' whether it may take effect, then 'hand_off'.
    stage              text NOT NULL DEFAULT 'decide' CHECK (stage IN ('decide', 'hand_off')),
    -- Which way it is handed off, once that is decided.
    hand_off           text CHECK (hand_off IN ('stream', 'request', 'sql')),
    entity_type        text,
    entity_key         text,
    -- Where it stands among its entity's events, as the partner says.
    order_value        bigint,
    -- Where it stands among those that took effect: from 1, without gaps.
    sequence           bigint,
    -- While PENDING or DEFERRED: when to look at it again.
    next_at            timestamptz NOT NULL,
    -- Handed to somebody who has not answered yet, until then.
    leased_until       timestamptz,
    -- When it stops waiting for what comes before it.
    deadline_at        timestamptz,
    deferrals          integer NOT NULL DEFAULT 0,
    -- Failed hand-offs, and hand-offs at all.
    failures           smallint NOT NULL DEFAULT 0,
    handed_out         integer NOT NULL DEFAULT 0,
    -- It failed, was put off or replayed: those behind it need not wait for it.
    yields             boolean NOT NULL DEFAULT false,
    -- Failures of our own: it could not even be looked at.
    faults             smallint NOT NULL DEFAULT 0,
    reason             text,
    detail             text,
    CHECK (status <> 'DEFERRED' OR stage = 'decide'),
    UNIQUE (partner_name, partner_event_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
-- What is to be decided, by partner, so that each has its share; the longest due first.
CREATE INDEX webhook_inbox_due ON hooklane.webhook_inbox (partner_name, next_at, id)
    WHERE status IN ('PENDING', 'DEFERRED') AND stage = 'decide';
-- What is to be handed off.
CREATE INDEX webhook_inbox_hand_off ON hooklane.webhook_inbox (hand_off, partner_name, next_at, id)
    WHERE status = 'PENDING' AND stage = 'hand_off';
-- What is open of one entity.
CREATE INDEX webhook_inbox_entity ON hooklane.webhook_inbox (partner_name, entity_type, entity_key, sequence)
    WHERE status IN ('PENDING', 'DEFERRED') AND entity_key IS NOT NULL;
CREATE INDEX webhook_inbox_quarantined ON hooklane.webhook_inbox (received_at, id)
    WHERE status = 'QUARANTINED';
-- Newest first for people, oldest first for retention.
CREATE INDEX webhook_inbox_age ON hooklane.webhook_inbox (received_at, id);
-- Finding a body under another id.
CREATE INDEX webhook_inbox_bodies ON hooklane.webhook_inbox (partner_name, body_sha256, received_at)
    WHERE NOT id_signed;
CREATE INDEX webhook_inbox_items ON hooklane.webhook_inbox (parent, id) WHERE parent IS NOT NULL;

-- The exact bytes: a signature covers bytes, and not every body is JSON. Partitioned by day.
CREATE TABLE hooklane.inbox_bodies (
    received_at  timestamptz NOT NULL,
    id           uuid NOT NULL,
    body         bytea NOT NULL,
    -- [["name", "value"], …]; null for an item, which has its request's.
    headers      json,
    content_type text,
    PRIMARY KEY (received_at, id)
) PARTITION BY RANGE (received_at);
ALTER TABLE hooklane.inbox_bodies ALTER COLUMN body SET STORAGE EXTERNAL;

-- Where each entity of a partner stands.
CREATE TABLE hooklane.inbox_entities (
    partner_name varchar(50) NOT NULL,
    entity_type  text NOT NULL,
    entity_key   text NOT NULL,
    -- Null until an event of a state machine took effect.
    state        text,
    -- Events that took effect.
    sequence     bigint NOT NULL DEFAULT 0,
    -- The highest order value of those.
    last_order   bigint,
    -- Events that wait for what comes before them.
    deferred     integer NOT NULL DEFAULT 0,
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (partner_name, entity_type, entity_key)
) WITH (fillfactor = 70);

-- What was decided about each event and why. Append-only; goes with its event.
CREATE TABLE hooklane.inbox_trail (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id   uuid NOT NULL,
    at         timestamptz NOT NULL,
    action     text NOT NULL,
    from_state text,
    to_state   text,
    sequence   bigint,
    reason     text,
    detail     text,
    -- The fingerprint of the machine that decided.
    machine    text
);
CREATE INDEX inbox_trail_event ON hooklane.inbox_trail (event_id, id);

-- Bodies that came under the id of an event with another body; a few of each event.
CREATE TABLE hooklane.inbox_conflicts (
    event_id     uuid NOT NULL,
    body_sha256  bytea NOT NULL,
    at           timestamptz NOT NULL,
    headers      json,
    body         bytea NOT NULL,
    PRIMARY KEY (event_id, body_sha256)
);

-- Requests that were no partner's; a few of each source.
CREATE TABLE hooklane.inbox_rejects (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partner_name varchar(50) NOT NULL,
    at           timestamptz NOT NULL,
    reason       text NOT NULL,
    remote       text,
    headers      json NOT NULL,
    -- The beginning, and how many bytes there were.
    body         bytea NOT NULL,
    body_bytes   bigint NOT NULL
);
CREATE INDEX inbox_rejects_partner ON hooklane.inbox_rejects (partner_name, id);

-- What is to be published on INBOX, written with the decision and deleted once the stream has it. An
-- entity's row is locked from before its position is drawn until the decision is committed, so that
-- its events stand here in the order in which they took effect.
CREATE TABLE hooklane.inbox_handoffs (
    position    bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    event_id    uuid NOT NULL,
    received_at timestamptz NOT NULL,
    attempt     integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0.0, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX inbox_handoffs_age ON hooklane.inbox_handoffs (received_at);
CREATE INDEX inbox_handoffs_event ON hooklane.inbox_handoffs (event_id);

-- A body as JSON, letter by letter; null where it is none. Not jsonb, which rewrites what it takes and
-- unfolds numbers such as 1e131071.
CREATE FUNCTION hooklane.inbox_json(body bytea) RETURNS json
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN convert_from(body, 'UTF8')::json;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

CREATE VIEW hooklane.webhook_inbox_events AS
SELECT w.id, w.partner_name, w.partner_event_id, hooklane.inbox_json(b.body) AS payload,
       w.signature_verified, w.status, w.received_at, w.processed_at
  FROM hooklane.webhook_inbox w
  LEFT JOIN hooklane.inbox_bodies b ON b.received_at = w.received_at AND b.id = w.id;

-- The pause after the first, second and third failed hand-off; null after the fourth, which is the last.
CREATE FUNCTION hooklane.inbox_pause(failures integer) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT (ARRAY['1 minute', '5 minutes', '15 minutes'])[failures]::interval $$;

-- Whether it is an event's turn among those of its entity: nobody is at another one, and none before
-- it is due or has never been tried. Here and below, where rows are looked for by id or entity, the
-- status is PENDING or DEFERRED: of the two the stage hand_off knows only PENDING, but said like that the
-- index of what is to be handed off does not serve, which the planner takes to be small where it was
-- when statistics were gathered.
CREATE FUNCTION hooklane.inbox_is_next(event hooklane.webhook_inbox, at timestamptz) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, hooklane, pg_temp
    AS $$
        SELECT event.entity_key IS NULL OR NOT EXISTS (
            SELECT FROM webhook_inbox o
             WHERE o.partner_name = event.partner_name AND o.entity_type = event.entity_type
               AND o.entity_key = event.entity_key AND o.status IN ('PENDING', 'DEFERRED')
               AND o.stage = 'hand_off' AND o.id <> event.id
               AND (o.leased_until > at
                    OR o.sequence < event.sequence AND (NOT o.yields OR o.next_at <= at)))
    $$;

-- Lets nobody else hand off an event of the same entity until the transaction ends; false where
-- somebody else does. Two entities may share a lock, and then wait for each other.
CREATE FUNCTION hooklane.inbox_try_entity(event hooklane.webhook_inbox) RETURNS boolean
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, hooklane, pg_temp
    AS $$
        SELECT event.entity_key IS NULL OR pg_try_advisory_xact_lock(7261005,
            hashtext(concat_ws(chr(31), event.partner_name, event.entity_type, event.entity_key)))
    $$;

-- Writes down that hand-offs of these events failed: they are tried again later, or end in quarantine.
-- Whoever calls it has locked them.
CREATE FUNCTION hooklane.inbox_failures(events uuid[], reasons text[], at timestamptz)
    RETURNS TABLE (event uuid, partner text, became text)
    LANGUAGE sql VOLATILE
    SET search_path = pg_catalog, hooklane, pg_temp
    AS $$
        WITH failed AS (
            UPDATE webhook_inbox w
               SET failures = w.failures + 1, yields = true, leased_until = NULL, deferrals = 0,
                   deadline_at = NULL, processed_at = NULL, detail = left(f.reason, 500),
                   status = CASE WHEN p.pause IS NULL THEN 'QUARANTINED' ELSE 'PENDING' END,
                   reason = CASE WHEN p.pause IS NULL THEN 'handler_failed' END,
                   next_at = $3 + coalesce(p.pause, interval '0')
              FROM unnest($1, $2) AS f (id, reason)
              JOIN webhook_inbox o ON o.id = f.id
             CROSS JOIN LATERAL (SELECT inbox_pause(o.failures + 1)) AS p (pause)
             WHERE w.id = f.id AND w.stage = 'hand_off' AND w.status IN ('PENDING', 'PROCESSED')
         RETURNING w.id, w.partner_name, w.status, w.failures, w.detail
        ), noted AS (
            INSERT INTO inbox_trail (event_id, at, action, reason, detail)
            SELECT id, $3, CASE status WHEN 'QUARANTINED' THEN 'quarantined' ELSE 'failed' END,
                   'handler_failed', concat('failure ', failures, ': ', detail)
              FROM failed
        )
        SELECT id, partner_name::text, status::text FROM failed
    $$;

-- For whoever handles events in a transaction of their own, together with what they write: takes events
-- of a partner that are due, until that transaction ends. At most 100, and one of an entity.
CREATE FUNCTION hooklane.inbox_claim(
        partner text, max_rows integer DEFAULT 10, at timestamptz DEFAULT clock_timestamp())
    RETURNS TABLE (id uuid, partner_name text, partner_event_id text, event_type text, entity_type text,
                   entity_key text, sequence bigint, integrity text, content_type text, body bytea,
                   payload json, received_at timestamptz, failures integer)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, hooklane, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted integer := least(coalesce(max_rows, 10), 100);
    taken uuid[] := '{}';
    candidate uuid;
BEGIN
    FOR candidate IN
        SELECT w.id FROM webhook_inbox w
         WHERE w.hand_off = 'sql' AND w.partner_name = $1 AND w.status = 'PENDING'
           AND w.stage = 'hand_off' AND w.next_at <= $3
           -- inbox_is_next, in line: an entity may have many that wait for their turn.
           AND (w.entity_key IS NULL OR NOT EXISTS (
               SELECT FROM webhook_inbox o
                WHERE o.partner_name = w.partner_name AND o.entity_type = w.entity_type
                  AND o.entity_key = w.entity_key AND o.status IN ('PENDING', 'DEFERRED')
                  AND o.stage = 'hand_off' AND o.id <> w.id
                  AND (o.leased_until > $3
                       OR o.sequence < w.sequence AND (NOT o.yields OR o.next_at <= $3))))
         ORDER BY w.next_at, w.id
    LOOP
        EXIT WHEN cardinality(taken) >= wanted;
        -- Whoever had its entity may have changed it since, which a statement begun now sees.
        IF (SELECT inbox_try_entity(w) FROM webhook_inbox w WHERE w.id = candidate) THEN
            PERFORM FROM webhook_inbox w
              WHERE w.id = candidate AND w.hand_off = 'sql' AND w.status IN ('PENDING', 'DEFERRED')
                AND w.stage = 'hand_off' AND w.next_at <= $3 AND inbox_is_next(w, $3)
                FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                taken := taken || candidate;
            END IF;
        END IF;
    END LOOP;
    RETURN QUERY
        SELECT w.id, w.partner_name::text, w.partner_event_id::text, w.event_type, w.entity_type,
               w.entity_key, w.sequence, w.integrity, b.content_type, b.body, inbox_json(b.body),
               w.received_at, w.failures::integer
          FROM unnest(taken) WITH ORDINALITY AS t (id, n)
          JOIN webhook_inbox w ON w.id = t.id
          JOIN inbox_bodies b ON b.received_at = w.received_at AND b.id = w.id
         ORDER BY t.n;
END $$;

-- The event was handled: call it in the transaction that claimed it.
CREATE FUNCTION hooklane.inbox_done(event uuid, at timestamptz DEFAULT clock_timestamp()) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, hooklane, pg_temp AS $$
BEGIN
    UPDATE webhook_inbox w
       SET status = 'PROCESSED', processed_at = $2, reason = NULL, detail = NULL
     WHERE w.id = $1 AND w.status IN ('PENDING', 'DEFERRED') AND w.stage = 'hand_off'
       AND w.hand_off = 'sql';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the event % does not wait to be handled', event
            USING ERRCODE = 'no_data_found',
                  HINT = 'Claim it with hooklane.inbox_claim in the same transaction.';
    END IF;
    INSERT INTO inbox_trail (event_id, at, action) VALUES ($1, $2, 'processed');
END $$;

-- The event could not be handled: it comes again after 1, 5 and 15 minutes, then it is quarantined. Call
-- it in a transaction that commits: the one that claimed the event, or a new one after rolling that back.
CREATE FUNCTION hooklane.inbox_fail(
        event uuid, reason text, at timestamptz DEFAULT clock_timestamp()) RETURNS text
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, hooklane, pg_temp AS $$
DECLARE
    status text;
BEGIN
    PERFORM FROM webhook_inbox w
      WHERE w.id = $1 AND w.status IN ('PENDING', 'DEFERRED') AND w.stage = 'hand_off'
        AND w.hand_off = 'sql'
        FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the event % does not wait to be handled', event
            USING ERRCODE = 'no_data_found',
                  HINT = 'Claim it with hooklane.inbox_claim first.';
    END IF;
    SELECT f.became INTO status
      FROM inbox_failures(ARRAY[$1], ARRAY[coalesce($2, 'failed')], $3) f;
    RETURN status;
END $$;

-- Roles that handle events are named by the operator.
REVOKE EXECUTE ON FUNCTION hooklane.inbox_claim(text, integer, timestamptz) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION hooklane.inbox_done(uuid, timestamptz) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION hooklane.inbox_fail(uuid, text, timestamptz) FROM PUBLIC;

-- Tells operators of every event that ends in quarantine, whichever way it does.
INSERT INTO hooklane.event_types (name, description) VALUES
    ('hooklane.inbox.quarantined', 'A partner''s event needs a person: it can''t be read, is illegal, or its handler fails.')
ON CONFLICT (name) DO NOTHING;

CREATE FUNCTION hooklane.inbox_tell() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, hooklane, pg_temp AS $$
BEGIN
    INSERT INTO operational_events (id, event_type, payload)
    VALUES (gen_random_uuid(), 'hooklane.inbox.quarantined', json_build_object(
        'type', 'hooklane.inbox.quarantined',
        'timestamp', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'data', json_build_object(
            'event', 'inb_' || NEW.id, 'partner', NEW.partner_name,
            'partner_event_id', NEW.partner_event_id, 'event_type', NEW.event_type,
            'entity_type', NEW.entity_type, 'entity_key', NEW.entity_key,
            'reason', NEW.reason, 'detail', NEW.detail,
            'received_at', to_char(NEW.received_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))));
    RETURN NULL;
END $$;
CREATE TRIGGER inbox_tell AFTER UPDATE OF status ON hooklane.webhook_inbox
    FOR EACH ROW WHEN (NEW.status = 'QUARANTINED' AND OLD.status <> 'QUARANTINED')
    EXECUTE FUNCTION hooklane.inbox_tell();

-- As before, with the inbox's bodies.
CREATE OR REPLACE FUNCTION hooklane.ensure_day(at timestamptz) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    day date := (at AT TIME ZONE 'UTC')::date;
    lower_bound timestamptz := day::timestamp AT TIME ZONE 'UTC';
    upper_bound timestamptz := (day + 1)::timestamp AT TIME ZONE 'UTC';
    parent text;
    child text;
BEGIN
    FOREACH parent IN ARRAY ARRAY['messages', 'deliveries', 'attempts', 'inbox_bodies'] LOOP
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

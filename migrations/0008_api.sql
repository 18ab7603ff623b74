-- Keys for the HTTP API, who changed what, and versions against which two writers are told apart.
--
-- Locks: ALTER TABLE takes ACCESS EXCLUSIVE on consumers and event_types for the moment it needs to add
-- a column with a constant default, which rewrites nothing; the foreign key of api_keys takes SHARE ROW
-- EXCLUSIVE on consumers until the migration commits: adding consumers waits for that long. Both tables
-- are small, and everything else is new.

-- Grows with every change.
ALTER TABLE hooklane.consumers ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE hooklane.event_types ADD COLUMN version bigint NOT NULL DEFAULT 1;

CREATE TABLE hooklane.api_keys (
    id           uuid PRIMARY KEY,
    name         text NOT NULL,
    scope        text NOT NULL CHECK (scope IN ('publish', 'consumer', 'read', 'admin')),
    -- The one consumer that it is good for; null is all of them.
    consumer_id  text REFERENCES hooklane.consumers,
    -- SHA-256 of the whole key. The key has 256 random bits, so that nothing slower is needed.
    digest       bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    -- The key's last four characters, for people.
    hint         text NOT NULL CHECK (char_length(hint) = 4),
    -- Requests a second; null takes the deployment's.
    rate_limit   integer CHECK (rate_limit BETWEEN 1 AND 10000),
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- 'cli', or the id of the key that made it.
    created_by   text NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    -- To the minute: a key in use is not written to with every request.
    last_used_at timestamptz,
    CHECK (CASE scope WHEN 'consumer' THEN consumer_id IS NOT NULL
                      WHEN 'publish' THEN true
                      ELSE consumer_id IS NULL END)
) WITH (fillfactor = 80);

-- What somebody changed by hand, written in the transaction of the change.
CREATE TABLE hooklane.audit_log (
    id          uuid PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- 'cli', or the id of an API key; and its name at that time.
    actor       text NOT NULL,
    actor_name  text NOT NULL,
    -- The request that asked for it, where one did.
    request_id  text,
    -- Such as 'endpoint.create'.
    action      text NOT NULL,
    -- Whom it is about; null is nobody in particular.
    consumer_id text,
    -- The id of what was changed.
    subject     text NOT NULL,
    -- Names of what was changed, counts, times. Never a secret, never a header's value.
    detail      jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_at ON hooklane.audit_log (at, id);
CREATE INDEX audit_log_consumer ON hooklane.audit_log (consumer_id, at, id) WHERE consumer_id IS NOT NULL;

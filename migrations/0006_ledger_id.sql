-- Which ledger this is. Streams carry it, so that a second ledger on the same broker is noticed.
--
-- Locks: none; everything is new.

CREATE TABLE hooklane.ledger (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id       uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO hooklane.ledger DEFAULT VALUES;

-- The merge rule as one statement. r is what the records say, d what the row says; wins is the order
-- of the rule, more the order of answers within a series, answers whether the answer is taken.
--
-- No bounds on d.accepted_at: the key alone prunes day partitions as the statement runs, while a
-- range of a fresh day, which has no statistics, looks small enough to be read whole for each batch.
WITH r AS MATERIALIZED (
    SELECT * FROM unnest($1::timestamptz[], $2::uuid[], $3::uuid[], $4::int[], $5::text[]::hooklane.delivery_status[],
                         $6::int[], $7::smallint[], $8::timestamptz[], $9::int[], $10::int[],
                         $11::smallint[], $12::text[], $13::text[], $14::bool[], $15::timestamptz[])
        AS u (accepted_at, message_id, endpoint_id, series, status, drive, settled, next_attempt_at,
              attempt_count, counted, last_status, last_error, failure_reason, fault, settled_at)
), changed AS (
    UPDATE hooklane.deliveries d SET
        (series, status, drive, settled, next_attempt_at, attempt_count, counted, last_status, last_error,
         failure_reason, faults, settled_at) = (
            SELECT
                CASE WHEN x.wins THEN r.series ELSE d.series END,
                CASE WHEN NOT x.wins THEN d.status WHEN x.poison THEN 'failed' ELSE r.status END,
                CASE WHEN x.wins THEN r.drive ELSE d.drive END,
                CASE WHEN x.wins THEN r.settled ELSE d.settled END,
                CASE WHEN x.wins THEN coalesce(r.next_attempt_at, d.next_attempt_at) ELSE d.next_attempt_at END,
                CASE WHEN x.answers THEN r.attempt_count ELSE d.attempt_count END,
                CASE WHEN r.series = d.series THEN greatest(d.counted, r.counted)
                     WHEN x.wins THEN r.counted ELSE d.counted END,
                CASE WHEN x.answers THEN r.last_status ELSE d.last_status END,
                CASE WHEN x.answers THEN r.last_error ELSE d.last_error END,
                CASE WHEN NOT x.wins THEN d.failure_reason WHEN x.poison THEN 'poison' ELSE r.failure_reason END,
                CASE WHEN x.wins AND r.fault THEN d.faults + 1 ELSE d.faults END,
                CASE WHEN NOT x.wins THEN d.settled_at
                     WHEN x.poison OR r.status <> 'stalled' THEN coalesce(r.settled_at, clock_timestamp()) END
            FROM (SELECT
                (r.series, hooklane.status_rank(r.status), r.drive, r.settled,
                 coalesce(r.next_attempt_at, '-infinity'), r.status, coalesce(r.failure_reason, '') COLLATE "C")
                > (d.series, hooklane.status_rank(d.status), d.drive, d.settled,
                   CASE WHEN d.status = 'stalled' THEN d.next_attempt_at ELSE '-infinity' END, d.status,
                   coalesce(d.failure_reason, '') COLLATE "C") AS wins,
                (r.attempt_count, coalesce(r.last_status BETWEEN 200 AND 299, false), coalesce(r.last_status, -1),
                 coalesce(r.last_error, '') COLLATE "C")
                > (d.attempt_count, coalesce(d.last_status BETWEEN 200 AND 299, false), coalesce(d.last_status, -1),
                   coalesce(d.last_error, '') COLLATE "C") AS more
            ) AS y
            CROSS JOIN LATERAL (SELECT
                y.wins,
                CASE WHEN r.series = d.series THEN y.more ELSE y.wins END AS answers,
                r.fault AND r.status = 'stalled' AND d.faults + 1 >= $16 AS poison
            ) AS x
        )
    FROM r
    WHERE d.accepted_at = r.accepted_at AND d.message_id = r.message_id AND d.endpoint_id = r.endpoint_id
      AND ((r.series, hooklane.status_rank(r.status), r.drive, r.settled,
            coalesce(r.next_attempt_at, '-infinity'), r.status, coalesce(r.failure_reason, '') COLLATE "C")
           > (d.series, hooklane.status_rank(d.status), d.drive, d.settled,
              CASE WHEN d.status = 'stalled' THEN d.next_attempt_at ELSE '-infinity' END, d.status,
              coalesce(d.failure_reason, '') COLLATE "C")
           OR r.series = d.series AND (
               r.counted > d.counted
               OR (r.attempt_count, coalesce(r.last_status BETWEEN 200 AND 299, false), coalesce(r.last_status, -1),
                   coalesce(r.last_error, '') COLLATE "C")
                  > (d.attempt_count, coalesce(d.last_status BETWEEN 200 AND 299, false), coalesce(d.last_status, -1),
                     coalesce(d.last_error, '') COLLATE "C")))
    RETURNING d.accepted_at, d.endpoint_id, d.consumer_id, d.partition, d.status, d.next_attempt_at,
              r.fault AND d.status = 'failed' AND d.faults >= $16 AS poisoned,
              d.status = 'failed' AND d.failure_reason IN ('exhausted', 'deadline') AS exhausted, d.message_id
), backlog AS (
    INSERT INTO hooklane.backlogs AS b (endpoint_id, consumer_id, partition, due_at, accepted_from)
    SELECT endpoint_id, min(consumer_id), min(partition), min(next_attempt_at), min(accepted_at)
      FROM changed WHERE status = 'stalled' GROUP BY endpoint_id ORDER BY endpoint_id
    ON CONFLICT (endpoint_id) DO UPDATE SET due_at = least(b.due_at, excluded.due_at),
        accepted_from = least(b.accepted_from, excluded.accepted_from)
     WHERE b.due_at > excluded.due_at OR b.accepted_from > excluded.accepted_from
)
SELECT count(*) AS "changed!", count(*) FILTER (WHERE poisoned) AS "poisoned!",
       coalesce(array_agg(accepted_at) FILTER (WHERE exhausted), '{}') AS "accepted!",
       coalesce(array_agg(message_id) FILTER (WHERE exhausted), '{}') AS "messages!",
       coalesce(array_agg(endpoint_id) FILTER (WHERE exhausted), '{}') AS "endpoints!",
       coalesce(array_agg(consumer_id) FILTER (WHERE exhausted), '{}') AS "consumers!"
  FROM changed

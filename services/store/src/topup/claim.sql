-- Claims, of each endpoint in $1, at most as many due deliveries as $2 says, and of all of them no
-- more than $3 bytes of payload: every endpoint's first, then every endpoint's second, and so on.
WITH room AS MATERIALIZED (
    SELECT r.endpoint_id, r.room, e.version, b.accepted_from
      FROM unnest($1::uuid[], $2::int[]) AS r (endpoint_id, room)
      JOIN hooklane.backlogs b ON b.endpoint_id = r.endpoint_id
      JOIN hooklane.endpoints e ON e.id = r.endpoint_id AND e.state IN ('active', 'failing')
), due AS MATERIALIZED (
    SELECT d.*, r.version
      FROM room r
     CROSS JOIN LATERAL (
           SELECT accepted_at, message_id, endpoint_id, next_attempt_at
             FROM hooklane.deliveries
            WHERE endpoint_id = r.endpoint_id AND status = 'stalled' AND accepted_at >= r.accepted_from
              AND next_attempt_at <= clock_timestamp() AND deadline > clock_timestamp()
            ORDER BY next_attempt_at LIMIT r.room
              FOR UPDATE SKIP LOCKED) d
), turn AS MATERIALIZED (
    SELECT d.*, row_number() OVER (PARTITION BY d.endpoint_id ORDER BY d.next_attempt_at) AS turn
      FROM due d
), sized AS MATERIALIZED (
    SELECT t.accepted_at, t.message_id, t.endpoint_id, t.version,
           row_number() OVER w AS place, sum(octet_length(m.payload)) OVER w AS bytes
      FROM turn t
      JOIN hooklane.messages m ON m.accepted_at = t.accepted_at AND m.id = t.message_id
    WINDOW w AS (ORDER BY t.turn, t.next_attempt_at, t.message_id, t.endpoint_id)
), claimed AS (
    UPDATE hooklane.deliveries d
       SET status = 'received', drive = d.drive + 1, settled = 0, partition = $4,
           driven_at = clock_timestamp(), not_after = clock_timestamp() + make_interval(secs => $5)
      FROM sized s
     WHERE d.accepted_at = s.accepted_at AND d.message_id = s.message_id AND d.endpoint_id = s.endpoint_id
       AND (s.bytes <= $3 OR s.place = 1)
    RETURNING d.*, s.version, s.place
)
SELECT c.accepted_at AS "accepted_at!", c.message_id AS "message_id!", c.endpoint_id AS "endpoint_id!",
       m.consumer_id AS "consumer_id!", m.event_type AS "event_type!", m.content_type AS "content_type!",
       m.payload AS "payload!", m.traceparent AS "traceparent?", m.tracestate AS "tracestate?",
       c.series AS "series!", c.drive AS "drive!", c.attempt_count AS "attempt_count!",
       c.counted AS "counted!", c.next_attempt_at AS "next_attempt_at!", c.deadline AS "deadline!",
       c.not_after AS "not_after!", c.version AS "endpoint_version!"
  FROM claimed c
  JOIN hooklane.messages m ON m.accepted_at = c.accepted_at AND m.id = c.message_id
 ORDER BY c.place

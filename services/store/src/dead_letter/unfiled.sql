-- Failed deliveries that are not in DLQ yet ($1 null), or were put there before $1: at most $2, and no
-- more than $3 bytes of payload, but one at the least.
WITH todo AS MATERIALIZED (
    (SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries
      WHERE $1::timestamptz IS NULL
        AND status = 'failed' AND discarded_at IS NULL AND dead_lettered_at IS NULL
      LIMIT $2)
    UNION ALL
    (SELECT accepted_at, message_id, endpoint_id FROM hooklane.deliveries
      WHERE status = 'failed' AND discarded_at IS NULL AND dead_lettered_at < $1
      ORDER BY dead_lettered_at LIMIT $2)
), sized AS MATERIALIZED (
    SELECT t.accepted_at, t.message_id, t.endpoint_id,
           row_number() OVER w AS place, sum(octet_length(m.payload)) OVER w AS bytes
      FROM todo t
      JOIN hooklane.messages m ON m.accepted_at = t.accepted_at AND m.id = t.message_id
    WINDOW w AS (ORDER BY t.accepted_at, t.message_id, t.endpoint_id)
)
SELECT d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, m.event_type, m.content_type, m.payload,
       m.traceparent, m.tracestate, d.series, d.attempt_count, d.failure_reason, d.last_status,
       d.last_error, d.settled_at, statement_timestamp() AS "now!"
  FROM sized s
  JOIN hooklane.deliveries d ON d.accepted_at = s.accepted_at AND d.message_id = s.message_id
                            AND d.endpoint_id = s.endpoint_id
  JOIN hooklane.messages m ON m.accepted_at = s.accepted_at AND m.id = s.message_id
 WHERE s.bytes <= $3 OR s.place = 1
 ORDER BY s.place

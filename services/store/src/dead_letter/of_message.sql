-- Dead letters of the message $1, accepted at one of $2, that match; at most as many as a consumer has
-- endpoints. In no order.
SELECT d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, m.event_type, d.series, d.attempt_count,
       d.failure_reason, d.last_status, d.last_error, d.settled_at AS "failed_at!", d.dead_lettered_at,
       octet_length(m.payload) AS "bytes!"
  FROM unnest($2::timestamptz[]) AS a (accepted_at)
  JOIN hooklane.deliveries d ON d.accepted_at = a.accepted_at AND d.message_id = $1
  JOIN hooklane.messages m ON m.accepted_at = a.accepted_at AND m.id = $1
 WHERE d.status = 'failed' AND d.discarded_at IS NULL
   AND d.settled_at >= coalesce($7, '-infinity'::timestamptz)
   AND d.settled_at <= coalesce($8, 'infinity'::timestamptz)
   AND ($3::text IS NULL OR d.consumer_id = $3)
   AND ($4::uuid IS NULL OR d.endpoint_id = $4)
   AND ($5::text IS NULL OR m.event_type = $5)
   AND ($6::text IS NULL OR d.failure_reason = $6)

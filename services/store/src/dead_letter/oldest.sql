-- Dead letters that match, in the order of the index deliveries_failed. $1 are the times at which the
-- message $2 was accepted, $9 to $11 the place to begin behind.
SELECT d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, m.event_type, d.series, d.attempt_count,
       d.failure_reason, d.last_status, d.last_error, d.settled_at AS "failed_at!", d.dead_lettered_at,
       octet_length(m.payload) AS "bytes!"
  FROM hooklane.deliveries d
  JOIN hooklane.messages m ON m.accepted_at = d.accepted_at AND m.id = d.message_id
 WHERE d.status = 'failed' AND d.discarded_at IS NULL
   AND ($1::timestamptz[] IS NULL OR d.accepted_at = ANY($1))
   AND ($2::uuid IS NULL OR d.message_id = $2)
   AND ($3::text IS NULL OR d.consumer_id = $3)
   AND ($4::uuid IS NULL OR d.endpoint_id = $4)
   AND ($5::text IS NULL OR m.event_type = $5)
   AND ($6::text IS NULL OR d.failure_reason = $6)
   AND d.settled_at >= coalesce($7, '-infinity'::timestamptz)
   AND d.settled_at <= coalesce($8, 'infinity'::timestamptz)
   AND ($9::timestamptz IS NULL OR (d.settled_at, d.message_id, d.endpoint_id) > ($9, $10, $11))
 ORDER BY d.settled_at ASC, d.message_id ASC, d.endpoint_id ASC LIMIT $12

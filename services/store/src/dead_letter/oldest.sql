-- Dead letters that match, in the order of the index deliveries_failed, from $5 to $6. Behind $7 to $9,
-- whose time is one end of that range, or the pages before would be read again for each.
SELECT d.accepted_at, d.message_id, d.endpoint_id, d.consumer_id, m.event_type, d.series, d.attempt_count,
       d.failure_reason, d.last_status, d.last_error, d.settled_at AS "failed_at!", d.dead_lettered_at,
       octet_length(m.payload) AS "bytes!"
  FROM hooklane.deliveries d
  JOIN hooklane.messages m ON m.accepted_at = d.accepted_at AND m.id = d.message_id
 WHERE d.status = 'failed' AND d.discarded_at IS NULL
   AND d.settled_at >= coalesce($5, '-infinity'::timestamptz)
   AND d.settled_at <= coalesce($6, 'infinity'::timestamptz)
   AND ($7::timestamptz IS NULL OR (d.settled_at, d.message_id, d.endpoint_id) > ($7, $8, $9))
   AND ($1::text IS NULL OR d.consumer_id = $1)
   AND ($2::uuid IS NULL OR d.endpoint_id = $2)
   AND ($3::text IS NULL OR m.event_type = $3)
   AND ($4::text IS NULL OR d.failure_reason = $4)
 ORDER BY d.settled_at ASC, d.message_id ASC, d.endpoint_id ASC LIMIT $10

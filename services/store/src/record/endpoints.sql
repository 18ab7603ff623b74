-- Moves the endpoints $1 from the state $2 to the state $3, and holds the endpoints $5 until $6. A new version, which
-- brings it to the lanes, is for a hold and for a move of which $4 says so. Answers which were moved.
WITH move AS MATERIALIZED (
     SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bool[]) AS u (id, was, becomes, told)
 ), hold AS MATERIALIZED (
     SELECT id, max(until) AS until FROM unnest($5::uuid[], $6::timestamptz[]) AS u (id, until) GROUP BY id
 ), target AS MATERIALIZED (
     SELECT e.id, m.becomes::hooklane.endpoint_state AS becomes, coalesce(m.told, false) AS told,
            coalesce(h.until > greatest(e.held_until, clock_timestamp()), false) AS later, h.until
       FROM hooklane.endpoints e
       LEFT JOIN move m ON m.id = e.id AND m.was = e.state::text
       LEFT JOIN hold h ON h.id = e.id
      WHERE e.id = ANY($1::uuid[] || $5::uuid[])
      ORDER BY e.id FOR NO KEY UPDATE OF e
 ), changed AS (
     UPDATE hooklane.endpoints e SET
         state = coalesce(t.becomes, e.state),
         held_until = CASE WHEN t.later THEN t.until ELSE e.held_until END,
         version = CASE WHEN t.told OR t.later THEN nextval('hooklane.endpoint_version') ELSE e.version END,
         updated_at = clock_timestamp()
       FROM target t
      WHERE e.id = t.id AND (t.becomes IS NOT NULL OR t.later)
     RETURNING e.id, t.becomes IS NOT NULL AS moved, t.later)
 SELECT coalesce(array_agg(id) FILTER (WHERE moved), '{}') AS "moved!", count(*) FILTER (WHERE later) AS "held!" FROM changed

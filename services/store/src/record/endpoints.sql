-- Disables the endpoints $1 and holds the endpoints $2 until $3.
WITH hold AS (
     SELECT id, max(until) AS until FROM unnest($2::uuid[], $3::timestamptz[]) AS u (id, until) GROUP BY id
 ), target AS (
     SELECT e.id, e.id = ANY($1) AND e.state NOT IN ('disabled', 'deleted') AS gone,
            coalesce(h.until > greatest(e.held_until, clock_timestamp()), false) AS later, h.until
       FROM hooklane.endpoints e LEFT JOIN hold h USING (id)
      WHERE e.id = ANY($1) OR e.id = ANY($2)
      ORDER BY e.id FOR UPDATE OF e
 ), changed AS (
     UPDATE hooklane.endpoints e SET
         state = CASE WHEN t.gone THEN 'disabled' ELSE e.state END,
         held_until = CASE WHEN t.later THEN t.until ELSE e.held_until END,
         version = nextval('hooklane.endpoint_version'),
         updated_at = clock_timestamp()
       FROM target t
      WHERE e.id = t.id AND (t.gone OR t.later)
     RETURNING t.gone, t.later)
 SELECT count(*) FILTER (WHERE gone) AS "disabled!", count(*) FILTER (WHERE later) AS "held!" FROM changed

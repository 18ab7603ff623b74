-- Writes attempts that are not there yet; answers which these were, unless all of them were.
WITH new AS (
     INSERT INTO hooklane.attempts
         (started_at, id, accepted_at, message_id, endpoint_id, series, drive, number,
          duration_us, status, headers, body, error, detail, verdict, traceparent)
     SELECT a, b, c, d, e, f, g, h, i, j, k::json, l, m, n, o, p
       FROM unnest($1::timestamptz[], $2::uuid[], $3::timestamptz[], $4::uuid[], $5::uuid[],
                   $6::int[], $7::int[], $8::int[], $9::bigint[], $10::smallint[],
                   $11::text[], $12::bytea[], $13::text[], $14::text[], $15::text[],
                   $16::text[]) AS u (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
     ON CONFLICT DO NOTHING
     RETURNING id)
 SELECT count(*) AS "inserted!",
        CASE WHEN count(*) < cardinality($2) THEN coalesce(array_agg(id), '{}') END AS "news?" FROM new

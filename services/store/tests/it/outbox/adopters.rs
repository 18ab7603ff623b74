//! Tables that are not ours, in databases that are not ours.

use hooklane_store::Store;
use hooklane_store::outbox::{Columns, OnPublished, Reader, Scan, Source, grants};
use hooklane_testkit::postgres::{self, Database};

use super::{PATIENCE, drain, lead, ledger, round};
use crate::accept::settings;
use crate::ledger::Ledger;

/// An empty database: a producer's.
async fn producers() -> Database {
    postgres::database("empty", |_url| async { Ok::<_, std::io::Error>(()) })
        .await
        .unwrap()
}

fn at(database: &Database, source: Source) -> Source {
    Source {
        database_url: Some(hooklane_core::config::ConnectionUrl::new(database.url())),
        ..source
    }
}

fn columns(names: [&str; 10]) -> Columns {
    let [
        id,
        order,
        consumer,
        event_type,
        payload,
        content_type,
        key,
        headers,
        created,
        processed,
    ] = names.map(str::to_owned);
    Columns {
        id,
        order,
        consumer,
        event_type,
        payload,
        content_type,
        idempotency_key: key,
        headers,
        created_at: created,
        processed_at: processed,
    }
}

#[tokio::test]
async fn a_table_in_another_database_works_with_the_grants_that_we_print() {
    let ledger = ledger().await;
    let producers = producers().await;
    let source = Source {
        name: "shop".to_owned(),
        ..Source::default()
    };
    let suffix = producers.url().len() * 1000 + std::process::id() as usize;
    let (relay, producer) = (format!("Relay {suffix}"), format!("producer'{suffix}"));
    let quoted = |name: &str| format!("\"{name}\"");
    let roles = format!(
        "CREATE ROLE {} LOGIN PASSWORD 'r'; CREATE ROLE {} LOGIN PASSWORD 'p';",
        quoted(&relay),
        quoted(&producer)
    );
    producers.psql(&roles).await.unwrap();
    producers
        .psql(&grants(&source, &relay, &producer))
        .await
        .unwrap();

    let as_role = |role: &str, password: &str| {
        let rest = producers.url().split_once('@').unwrap().1;
        let role = role.replace(' ', "%20").replace('\'', "%27");
        format!("postgres://{role}:{password}@{rest}")
    };
    // The producer writes, and may not touch what is written.
    let url = as_role(&producer, "p");
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    sqlx::query(
        "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload, aggregate_type)
         VALUES ('acme', 'invoice.paid', '{\"a\":1, \"a\":2}', 'invoice')",
    )
    .execute(&pool)
    .await
    .unwrap();
    let marking = "UPDATE hooklane.outbox_events SET processed_at = now()";
    assert!(sqlx::query(marking).execute(&pool).await.is_err());

    let source = Source {
        database_url: Some(hooklane_core::config::ConnectionUrl::new(as_role(
            &relay, "r",
        ))),
        ..source
    };
    let mut reader = lead(&ledger, &source).await;
    assert_eq!(reader.scan(), Scan::Horizon, "{:?}", reader.why_plain());
    let events = drain(&mut reader).await;
    assert_eq!(&*events[0].payload, br#"{"a":1, "a":2}"#);
    let marked = producers
        .psql("SELECT count(*) FROM hooklane.outbox_events WHERE processed_at IS NOT NULL")
        .await
        .unwrap();
    assert_eq!(marked.trim(), "1");
    assert!(!reader.purge().await.unwrap());
    drop(reader);
    pool.close().await;
    producers
        .psql(&format!(
            "DROP OWNED BY {0}, {1}; DROP ROLE {0}, {1}",
            quoted(&relay),
            quoted(&producer)
        ))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_crash_between_accepting_and_marking_costs_a_repetition_only() {
    let ledger = ledger().await;
    let producers = producers().await;
    producers
        .psql(include_str!("../../../../../migrations/0002_outbox.sql"))
        .await
        .unwrap();
    producers
        .psql(
            "INSERT INTO hooklane.outbox_events (consumer_id, event_type, payload)
             VALUES ('acme', 'invoice.paid', '1'), ('nobody', 'invoice.paid', '2')",
        )
        .await
        .unwrap();
    let source = at(&producers, Source::default());
    let mut reader = lead(&ledger, &source).await;
    let batch = reader.read().await.unwrap();
    // The ledger has them; the marks never happen.
    let accepted = ledger
        .store
        .take_in(&settings(), PATIENCE, &batch.offers)
        .await
        .unwrap();
    assert_eq!(accepted.events.len(), 1);
    drop(reader);
    let mut reader = relead(&ledger.store, &source).await;
    let (events, settled) = round(&mut reader).await;
    assert_eq!((events.len(), settled), (0, 2));
    assert_eq!(
        ledger.sql("SELECT count(*) FROM hooklane.messages").await,
        "1"
    );
    let waiting = "SELECT count(*) FROM hooklane.rejected_events";
    assert_eq!(ledger.sql(waiting).await, "1");
}

async fn relead(store: &Store, source: &Source) -> Reader {
    let budget = std::time::Duration::from_secs(5);
    hooklane_testkit::wait::until_some("the lock", budget, async || {
        Reader::lead(store, source).await.unwrap()
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_bytea_table_with_names_of_its_own_works() {
    let ledger = ledger().await;
    ledger
        .sql(
            r#"CREATE SCHEMA "App";
               CREATE DOMAIN "App".bytes AS bytea;
               CREATE TABLE "App"."Order Events" (
                   "No" integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
                   tenant varchar(64) NOT NULL, kind text NOT NULL, body "App".bytes NOT NULL,
                   mime text, dedup uuid, written timestamp NOT NULL DEFAULT localtimestamp,
                   done timestamp);
               INSERT INTO "App"."Order Events" (tenant, kind, body, mime, dedup) VALUES
                   ('acme', 'invoice.paid', '\x00ff0d0a', 'application/octet-stream', NULL),
                   ('acme', 'invoice.paid', 'plain', NULL, '00000000-0000-0000-0000-000000000001')"#,
        )
        .await;
    let source = Source {
        name: "orders".to_owned(),
        table: "App.Order Events".to_owned(),
        columns: columns([
            "No", "No", "tenant", "kind", "body", "mime", "dedup", "", "written", "done",
        ]),
        content_type: "text/plain".to_owned(),
        ..Source::default()
    };
    let mut reader = lead(&ledger, &source).await;
    // The application may give numbers of its own, so there is no horizon to go by.
    assert_eq!(reader.scan(), Scan::Plain);
    let events = drain(&mut reader).await;
    assert_eq!(&*events[0].payload, b"\x00\xff\r\n");
    assert_eq!(events[0].content_type, "application/octet-stream");
    assert_eq!(&*events[1].payload, b"plain");
    assert_eq!(events[1].content_type, "text/plain");
    let keys = ledger
        .sql("SELECT string_agg(idempotency_key, ',' ORDER BY payload) FROM hooklane.messages")
        .await;
    assert_eq!(keys, "orders:1,00000000-0000-0000-0000-000000000001");
    let done = r#"SELECT count(done) FROM "App"."Order Events""#;
    assert_eq!(ledger.sql(done).await, "2");
    let status = hooklane_store::outbox::status(&ledger.store, &source)
        .await
        .unwrap();
    assert_eq!(status.pending, 0);
}

#[tokio::test]
async fn a_jsonb_table_whose_rows_are_deleted_works() {
    let ledger = ledger().await;
    ledger
        .sql(
            r#"CREATE TABLE public.outbox (
                   id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
                   n bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
                   customer text NOT NULL, type text NOT NULL, data jsonb NOT NULL, meta jsonb);
               INSERT INTO public.outbox (customer, type, data, meta)
               VALUES ('acme', 'invoice.paid', '{"b": 1e2, "a": 1, "a": 2}',
                   '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}')"#,
        )
        .await;
    let source = Source {
        table: "outbox".to_owned(),
        columns: columns([
            "id", "n", "customer", "type", "data", "", "", "meta", "", "",
        ]),
        on_published: OnPublished::Delete,
        ..Source::default()
    };
    let mut reader = lead(&ledger, &source).await;
    assert_eq!(reader.scan(), Scan::Horizon, "{:?}", reader.why_plain());
    let events = drain(&mut reader).await;
    // As jsonb has it: that is what was lost when it was written.
    assert_eq!(&*events[0].payload, br#"{"a": 2, "b": 100}"#);
    assert!(events[0].trace.is_some());
    assert_eq!(ledger.sql("SELECT count(*) FROM public.outbox").await, "0");
}

#[tokio::test]
async fn a_sequence_that_caches_is_not_trusted() {
    let ledger = ledger().await;
    ledger
        .sql("ALTER TABLE hooklane.outbox_events ALTER COLUMN position SET CACHE 10")
        .await;
    let reader = lead(&ledger, &Source::default()).await;
    assert_eq!(reader.scan(), Scan::Plain);
    assert!(reader.why_plain().unwrap().contains("CACHE 1"));
}

#[tokio::test]
async fn a_table_that_does_not_fit_is_told_with_its_fix() {
    let ledger = ledger().await;
    let missing = Source {
        table: "hooklane.nothing".to_owned(),
        ..Source::default()
    };
    let text = problem(&ledger, &missing).await;
    assert!(text.contains("does not exist"), "{text}");
    let no_column = Source {
        columns: Columns {
            headers: "extra\"; DROP TABLE x; --".to_owned(),
            ..Columns::default()
        },
        ..Source::default()
    };
    let text = problem(&ledger, &no_column).await;
    assert!(
        text.contains("`columns.headers`, or leave it empty"),
        "{text}"
    );
}

#[tokio::test]
async fn a_table_whose_ids_may_stand_twice_is_refused_with_the_fix() {
    let ledger = ledger().await;
    ledger
        .sql(
            "CREATE TABLE public.events (
                 id bigint NOT NULL, n bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
                 consumer text NOT NULL, type text NOT NULL, payload text NOT NULL, done timestamptz);
             CREATE UNIQUE INDEX ON public.events (id, n);
             CREATE UNIQUE INDEX ON public.events (n) INCLUDE (id);
             CREATE UNIQUE INDEX ON public.events (id) WHERE done IS NULL;
             CREATE UNIQUE INDEX ON public.events ((id + 0));
             CREATE INDEX ON public.events (id)",
        )
        .await;
    let source = Source {
        table: "public.events".to_owned(),
        columns: columns([
            "id", "n", "consumer", "type", "payload", "", "", "", "", "done",
        ]),
        ..Source::default()
    };
    let text = problem(&ledger, &source).await;
    let fix = r#"CREATE UNIQUE INDEX CONCURRENTLY ON "public"."events" ("id")"#;
    assert!(text.contains(fix), "{text}");
    ledger.sql(fix).await;
    let reader = lead(&ledger, &source).await;
    assert_eq!(reader.scan(), Scan::Horizon);
    drop(reader);
    ledger
        .sql("CREATE TABLE public.more () INHERITS (public.events)")
        .await;
    let text = problem(&ledger, &source).await;
    assert!(text.contains("inherit"), "{text}");
}

#[tokio::test]
async fn a_partitioned_table_needs_ids_that_are_unique_across_partitions() {
    let ledger = ledger().await;
    let rest = "consumer text NOT NULL, type text NOT NULL, payload text NOT NULL,
                done timestamptz, day date NOT NULL";
    ledger
        .sql(&format!(
            "CREATE TABLE public.numbers (id bigint, {rest}, PRIMARY KEY (day, id))
                 PARTITION BY RANGE (day);
             CREATE TABLE public.uuids (id uuid, {rest}, PRIMARY KEY (day, id))
                 PARTITION BY RANGE (day);
             CREATE TABLE public.by_id (id bigint PRIMARY KEY, {rest}) PARTITION BY RANGE (id);
             CREATE TABLE public.some_uuids PARTITION OF public.uuids DEFAULT;
             CREATE TABLE public.some_ids PARTITION OF public.by_id DEFAULT"
        ))
        .await;
    let source = |table: &str| Source {
        table: format!("public.{table}"),
        columns: columns([
            "id", "", "consumer", "type", "payload", "", "", "", "", "done",
        ]),
        ..Source::default()
    };
    let text = problem(&ledger, &source("numbers")).await;
    assert!(text.contains("partition it by \"id\""), "{text}");
    for table in ["uuids", "by_id"] {
        let reader = lead(&ledger, &source(table)).await;
        assert_eq!(reader.scan(), Scan::Plain, "{table}");
    }
}

async fn problem(ledger: &Ledger, source: &Source) -> String {
    let error = Reader::lead(&ledger.store, source).await.unwrap_err();
    assert!(!error.is_transient());
    error.to_string()
}

use proptest::prelude::*;

use super::*;

fn filter(patterns: &[&str]) -> Filter {
    Filter::parse(patterns).unwrap()
}

#[test]
fn patterns_cover_what_they_say() {
    let table = [
        ("*", "invoice", true),
        ("*", "invoice.paid.late", true),
        ("invoice.paid", "invoice.paid", true),
        ("invoice.paid", "invoice.paid.late", false),
        ("invoice.paid", "invoice", false),
        ("invoice.paid", "Invoice.Paid", false),
        ("invoice.*", "invoice.paid", true),
        ("invoice.*", "invoice.paid.late", true),
        ("invoice.*", "invoice", false),
        ("invoice.*", "invoices.paid", false),
        ("invoice.paid.*", "invoice.paid.late", true),
        ("invoice.paid.*", "invoice.paid", false),
        ("invoice.paid.*", "invoice.sent.late", false),
    ];
    for (pattern, event_type, expected) in table {
        assert_eq!(
            filter(&[pattern]).matches(event_type),
            expected,
            "{pattern} and {event_type}"
        );
    }
}

#[test]
fn one_matching_pattern_is_enough() {
    let filter = filter(&["user.created", "invoice.*"]);
    assert!(filter.matches("user.created"));
    assert!(filter.matches("invoice.paid"));
    assert!(!filter.matches("user.deleted"));
}

#[test]
fn a_filter_is_never_empty() {
    assert_eq!(Filter::parse::<[&str; 0]>([]), Err(Invalid::Empty));
    assert_eq!("".parse::<Filter>(), Err(Invalid::Empty));
    assert_eq!(" ".parse::<Filter>(), Err(Invalid::Empty));
    assert!(serde_json::from_str::<Filter>("[]").is_err());
}

#[test]
fn what_is_no_pattern_is_refused() {
    let long = "a".repeat(101);
    for text in [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a-b",
        "*.paid",
        "invoice*",
        "invoice.*.late",
        "**",
        ".*",
        "a.*.*",
        "a.>",
        "a,b",
        "ä",
        "a\n",
        "a.b%",
        &long,
    ] {
        assert!(text.parse::<Pattern>().is_err(), "{text:?}");
    }
    assert!("a".repeat(100).parse::<Pattern>().is_ok());
}

#[test]
fn the_number_of_patterns_is_bounded() {
    let many: Vec<String> = (0..=MAX_PATTERNS).map(|n| format!("t{n}")).collect();
    assert_eq!(Filter::parse(&many), Err(Invalid::TooMany(201)));
    assert!(Filter::parse(&many[1..]).is_ok());
}

#[test]
fn the_canonical_form_does_not_depend_on_order_or_repetition() {
    let one = filter(&["user.created", "invoice.*", "*", "invoice.*"]);
    let other = filter(&["*", "invoice.*", "user.created"]);
    assert_eq!(one, other);
    assert_eq!(one.to_string(), "*,invoice.*,user.created");
    assert_eq!("user.created, invoice.*,*".parse(), Ok(one.clone()));
    let json = serde_json::to_string(&one).unwrap();
    assert_eq!(json, r#"["*","invoice.*","user.created"]"#);
    assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), one);
    assert_eq!(one.patterns().len(), 3);
}

#[test]
fn candidates_are_every_pattern_that_covers_the_type() {
    assert_eq!(
        candidates("invoice.paid.late"),
        ["*", "invoice.*", "invoice.paid.*", "invoice.paid.late"]
    );
    assert_eq!(candidates("invoice"), ["*", "invoice"]);
}

fn event_type() -> impl Strategy<Value = String> {
    // Few words, so that patterns and types often meet.
    proptest::collection::vec("[ab_]{1,2}", 1..4).prop_map(|words| words.join("."))
}

fn pattern() -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just("*".to_owned()),
        4 => event_type(),
        4 => event_type().prop_map(|t| format!("{t}.*")),
    ]
}

proptest! {
    #[test]
    fn matching_is_holding_a_candidate(
        patterns in proptest::collection::vec(pattern(), 1..6),
        event_type in event_type(),
    ) {
        let filter = Filter::parse(&patterns).unwrap();
        let candidates = candidates(&event_type);
        let held = filter.to_strings().iter().any(|p| candidates.contains(p));
        prop_assert_eq!(filter.matches(&event_type), held);
    }

    #[test]
    fn the_text_form_reads_back(patterns in proptest::collection::vec(pattern(), 1..6)) {
        let filter = Filter::parse(&patterns).unwrap();
        prop_assert_eq!(filter.to_string().parse::<Filter>(), Ok(filter));
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", event_type in ".{0,40}") {
        if let Ok(filter) = text.parse::<Filter>() {
            let _ = filter.matches(&event_type);
        }
        let _ = candidates(&event_type);
    }
}

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;

fn transition(event: &str, from: &[&str], to: &str) -> Transition {
    let (to, to_field) = match to.starts_with('/') {
        true => (None, Some(to.to_owned())),
        false => (Some(to.to_owned()), None),
    };
    Transition {
        event: event.to_owned(),
        from: from.iter().map(ToString::to_string).collect(),
        to,
        to_field,
    }
}

/// created, paid, shipped, delivered, closed; refunded from anywhere.
fn order() -> Config {
    Config {
        initial: "none".to_owned(),
        terminal: vec!["closed".to_owned(), "refunded".to_owned()],
        transitions: vec![
            transition("order.created", &["none"], "created"),
            transition("order.paid", &["created"], "paid"),
            transition("order.shipped", &["paid"], "shipped"),
            transition("order.delivered", &["shipped"], "delivered"),
            transition("order.closed", &["delivered"], "closed"),
            transition("order.refunded", &["paid", "shipped"], "refunded"),
        ],
        policy: Policy::default(),
    }
}

/// With a cycle: the body names the state.
fn subscription() -> Config {
    Config {
        initial: "none".to_owned(),
        terminal: vec!["canceled".to_owned()],
        transitions: vec![
            transition("sub.created", &["none"], "incomplete"),
            transition(
                "sub.updated",
                &["incomplete", "active", "past_due"],
                "/status",
            ),
            transition("sub.deleted", &["*"], "canceled"),
        ],
        policy: Policy::default(),
    }
}

fn machine(config: &Config) -> Machine {
    Machine::compile(config).unwrap()
}

fn at(state: &str, last_order: Option<i64>) -> Current<'_> {
    Current {
        state,
        fresh: state == "none",
        last_order,
    }
}

fn event<'a>(event_type: &'a str, order: Option<i64>, to_field: Option<&'a str>) -> Event<'a> {
    Event {
        event_type,
        order,
        to_field,
    }
}

/// What a verdict is, in a word, with the state or what is missing.
fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Apply { to } => format!("apply {to}"),
        Verdict::Defer { missing } => format!("defer {missing}"),
        Verdict::Late { .. } => "late".to_owned(),
        Verdict::Quarantine { .. } => "quarantine".to_owned(),
    }
}

#[test]
fn the_graph_decides_where_there_is_no_cycle() {
    let machine = machine(&order());
    let cases = [
        ("none", "order.created", "apply created"),
        ("created", "order.paid", "apply paid"),
        ("created", "order.created", "late"),
        ("created", "order.shipped", "defer order.paid (to `paid`)"),
        (
            "none",
            "order.shipped",
            "defer order.created (to `created`), then order.paid (to `paid`)",
        ),
        ("shipped", "order.paid", "late"),
        ("closed", "order.paid", "late"),
        // A refund ended it, and neither leads to the other.
        ("refunded", "order.delivered", "quarantine"),
        ("closed", "order.refunded", "quarantine"),
        ("refunded", "order.shipped", "late"),
        ("paid", "order.refunded", "apply refunded"),
        ("paid", "order.noted", "apply paid"),
        ("gone", "order.paid", "quarantine"),
    ];
    for (state, event_type, expected) in cases {
        let verdict = machine.decide(&at(state, None), &event(event_type, None, None));
        assert_eq!(word(&verdict), expected, "{event_type} in {state}");
    }
}

#[test]
fn the_order_value_decides_on_a_cycle() {
    let machine = machine(&subscription());
    let updated = |order, to| event("sub.updated", order, Some(to));
    let cases = [
        (
            at("none", None),
            updated(Some(3), "active"),
            "defer sub.created (to `incomplete`)",
        ),
        (
            at("incomplete", Some(1)),
            updated(Some(2), "active"),
            "apply active",
        ),
        (at("active", Some(5)), updated(Some(4), "past_due"), "late"),
        (
            at("active", Some(5)),
            updated(Some(5), "past_due"),
            "apply past_due",
        ),
        (
            at("active", Some(5)),
            updated(None, "past_due"),
            "apply past_due",
        ),
        (at("canceled", Some(9)), updated(Some(4), "active"), "late"),
        (
            at("canceled", Some(9)),
            event("sub.created", Some(1), None),
            "late",
        ),
        (
            at("canceled", Some(9)),
            event("sub.deleted", Some(10), None),
            "late",
        ),
        (
            at("none", None),
            event("sub.deleted", None, None),
            "apply canceled",
        ),
        // The body names a state that isn't one, the initial one, or none.
        (at("active", None), updated(None, "odd"), "quarantine"),
        (at("active", None), updated(None, "none"), "quarantine"),
        (
            at("active", None),
            event("sub.updated", None, None),
            "quarantine",
        ),
    ];
    for (current, event, expected) in cases {
        let verdict = machine.decide(&current, &event);
        assert_eq!(word(&verdict), expected, "{event:?} at {current:?}");
    }
}

#[test]
fn early_or_late_on_a_cycle_is_told_by_order_and_otherwise_by_policy() {
    let cycle = |undecided| {
        let mut config = Config {
            initial: "none".to_owned(),
            transitions: vec![
                transition("queued", &["none", "done"], "queued"),
                transition("started", &["queued"], "running"),
                transition("finished", &["running"], "done"),
            ],
            ..Config::default()
        };
        config.policy.undecided = undecided;
        machine(&config)
    };
    let accepting = cycle(Undecided::Accept);
    let started = |order| event("started", order, None);
    let at_done = at("done", Some(10));
    let cases = [
        (started(Some(11)), "defer queued (to `queued`)"),
        (started(Some(9)), "late"),
        (started(Some(10)), "apply running"),
        (started(None), "apply running"),
    ];
    for (event, expected) in cases {
        assert_eq!(
            word(&accepting.decide(&at_done, &event)),
            expected,
            "{event:?}"
        );
    }
    let unsaid = started(None);
    let defer = cycle(Undecided::Defer).decide(&at_done, &unsaid);
    assert_eq!(word(&defer), "defer queued (to `queued`)");
    let quarantine = cycle(Undecided::Quarantine).decide(&at_done, &unsaid);
    assert_eq!(word(&quarantine), "quarantine");
    // Nothing was applied yet, so nothing can be late.
    let fresh = accepting.decide(&at("none", None), &started(None));
    assert_eq!(word(&fresh), "defer queued (to `queued`)");
    assert!(accepting.warnings(false)[0].contains("`finished`, `queued`, `started`"));
    assert!(accepting.warnings(true).is_empty());
}

#[test]
fn policies_turn_every_verdict() {
    let mut config = order();
    config.policy = Policy {
        early: Early::Quarantine,
        late: Late::Quarantine,
        impossible: Impossible::Record,
        unknown_event: Unknown::Quarantine,
        ..Policy::default()
    };
    let machine = machine(&config);
    let cases = [
        ("created", "order.shipped", "quarantine"),
        ("shipped", "order.paid", "quarantine"),
        ("refunded", "order.delivered", "late"),
        ("paid", "order.noted", "quarantine"),
    ];
    for (state, event_type, expected) in cases {
        let verdict = machine.decide(&at(state, None), &event(event_type, None, None));
        assert_eq!(word(&verdict), expected, "{event_type} in {state}");
    }
}

#[test]
fn patterns_match_and_overlap() {
    let pattern = |text: &str| text.parse::<Pattern>().unwrap();
    assert!(pattern("*").matches("anything"));
    assert!(pattern("a.*").matches("a.b") && !pattern("a.*").matches("a"));
    assert!(pattern("a").matches("a") && !pattern("a").matches("a.b"));
    for (one, other, overlap) in [
        ("a.*", "a.b", true),
        ("a.b", "a.*", true),
        ("a.*", "a.b.*", true),
        ("a.*", "b.*", false),
        ("a", "a", true),
        ("a", "b", false),
        ("*", "x", true),
    ] {
        assert_eq!(
            pattern(one).overlaps(&pattern(other)),
            overlap,
            "{one} {other}"
        );
    }
    for bad in ["", "a*b", "**", "a\n"] {
        assert!(bad.parse::<Pattern>().is_err(), "{bad:?}");
    }
}

#[test]
fn every_fault_of_a_machine_is_named_by_its_key() {
    let mut bad = Config {
        initial: String::new(),
        terminal: vec!["end".to_owned()],
        transitions: vec![
            transition("a*b", &[], "x"),
            transition("e", &["*", "x"], "x"),
            transition("e", &["end"], "no pointer"),
            transition("u.*", &["x"], "/a"),
            transition("u.v", &["x"], "/b"),
        ],
        policy: Policy::default(),
    };
    bad.transitions[2].to_field = Some("status".to_owned());
    bad.policy.max_deferred = 0;
    let mut faults = Faults::new();
    bad.validate(&mut faults);
    let keys: Vec<&str> = faults
        .found()
        .iter()
        .map(|fault| fault.key.as_str())
        .collect();
    let expected = [
        "initial",
        "transitions.0.event",
        "transitions.0.from",
        "transitions.1.from",
        "transitions.2.from",
        "transitions.2.to",
        "transitions.4.to_field",
        "policy.max_deferred",
    ];
    assert_eq!(keys, expected);
    assert!(Machine::compile(&bad).is_err());
    assert!(Machine::compile(&Config::default()).is_err());
}

#[test]
fn a_machine_reads_back_from_its_own_words() {
    let config = subscription();
    let text = toml::to_string(&config).unwrap();
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), config);
    let compiled = machine(&config);
    assert_eq!(compiled.to_field("sub.updated"), Some("/status"));
    assert_eq!(compiled.to_field("sub.deleted"), None);
    assert_eq!(compiled.fingerprint().len(), 16);
    assert_ne!(compiled.fingerprint(), machine(&order()).fingerprint());
}

#[test]
fn what_an_event_says_is_quoted_shortly() {
    let machine = machine(&subscription());
    let long = "x\u{7}".repeat(100);
    let verdict = machine.decide(
        &at("active", None),
        &event("sub.updated", None, Some(&long)),
    );
    let Verdict::Quarantine { why } = verdict else {
        panic!("{verdict:?}");
    };
    assert!(!why.contains('\u{7}') && why.len() < 200, "{why}");
}

/// One event of a story.
#[derive(Debug, Clone, Copy)]
struct Told {
    id: usize,
    event_type: &'static str,
    to_field: Option<&'static str>,
}

const ORDER: [Told; 5] = [
    told(0, "order.created", None),
    told(1, "order.paid", None),
    told(2, "order.shipped", None),
    told(3, "order.delivered", None),
    told(4, "order.closed", None),
];
const SUBSCRIPTION: [Told; 5] = [
    told(0, "sub.created", None),
    told(1, "sub.updated", Some("active")),
    told(2, "sub.updated", Some("past_due")),
    told(3, "sub.updated", Some("active")),
    told(4, "sub.updated", Some("past_due")),
];

const fn told(id: usize, event_type: &'static str, to_field: Option<&'static str>) -> Told {
    Told {
        id,
        event_type,
        to_field,
    }
}

/// Takes events as they arrive, keeps what is deferred, and looks at it again after every move. What
/// has the same id arrived before.
fn run(machine: &Machine, arrivals: &[Told]) -> Result<String, TestCaseError> {
    let mut state = machine.initial().to_owned();
    let (mut fresh, mut last_order) = (true, None);
    let (mut seen, mut waiting) = ([false; 5], Vec::new());
    for arrival in arrivals {
        if std::mem::replace(&mut seen[arrival.id], true) {
            continue;
        }
        let mut queue = VecDeque::from([*arrival]);
        while let Some(now) = queue.pop_front() {
            let order = Some(i64::try_from(now.id).unwrap());
            let at = Current {
                state: &state,
                fresh,
                last_order,
            };
            match machine.decide(&at, &event(now.event_type, order, now.to_field)) {
                Verdict::Apply { to } => {
                    (state, fresh) = (to, false);
                    last_order = last_order.max(order);
                    queue.extend(waiting.drain(..));
                }
                Verdict::Defer { .. } => waiting.push(now),
                Verdict::Late { .. } => {}
                Verdict::Quarantine { why } => return Err(TestCaseError::fail(why)),
            }
        }
    }
    prop_assert!(waiting.is_empty(), "{waiting:?}");
    Ok(state)
}

/// Every order of five events.
fn permutations() -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..5 {
        all = all
            .into_iter()
            .flat_map(|before: Vec<usize>| {
                let left: Vec<usize> = (0..5).filter(|n| !before.contains(n)).collect();
                left.into_iter()
                    .map(move |n| [before.as_slice(), &[n]].concat())
            })
            .collect();
    }
    all
}

#[test]
fn every_order_of_arrival_ends_in_the_same_state() {
    let (order, subscription) = (machine(&order()), machine(&subscription()));
    let all = permutations();
    assert_eq!(all.len(), 120);
    for permutation in all {
        let arrive = |story: [Told; 5]| permutation.iter().map(|n| story[*n]).collect::<Vec<_>>();
        assert_eq!(
            run(&order, &arrive(ORDER)).unwrap(),
            "closed",
            "{permutation:?}"
        );
        let end = run(&subscription, &arrive(SUBSCRIPTION)).unwrap();
        assert_eq!(end, "past_due", "{permutation:?}");
    }
}

proptest! {
    #[test]
    fn duplicates_change_nothing(arrivals in Just((0..5usize).chain(0..5).chain(0..5).collect::<Vec<_>>()).prop_shuffle()) {
        let arrive = |story: [Told; 5]| arrivals.iter().map(|n| story[*n]).collect::<Vec<_>>();
        prop_assert_eq!(run(&machine(&order()), &arrive(ORDER))?, "closed");
        prop_assert_eq!(run(&machine(&subscription()), &arrive(SUBSCRIPTION))?, "past_due");
    }
}

use hooklane_proto::delivery::DeliveryKey;
use hooklane_proto::id::{AttemptId, EndpointId, MessageId};
use proptest::prelude::*;

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        Just(Verdict::Sent),
        Just(Verdict::Failed {
            reason: FailureReason::Exhausted
        }),
        Just(Verdict::Failed {
            reason: FailureReason::Gone
        }),
        (0..3_i64).prop_map(|due| Verdict::Retry {
            next_attempt_at: at(due)
        }),
    ]
}

/// Few values, so that records tie in many ways.
fn record() -> impl Strategy<Value = Record> {
    let key = DeliveryKey {
        accepted_at: at(0),
        message: MessageId::for_test(1),
        endpoint: EndpointId::for_test(1),
    };
    let drive = (1..3_i32, 1..4_i32).prop_map(move |(series, drive)| Drive { key, series, drive });
    let status = prop_oneof![Just(None), Just(Some(200)), Just(Some(500))];
    let error = prop_oneof![
        Just(None),
        Just(Some("timeout".to_owned())),
        Just(Some("dns".to_owned()))
    ];
    let attempt = (
        drive.clone(),
        1..4_i32,
        0..3_i32,
        0..3_i64,
        status,
        error,
        verdict(),
    )
        .prop_map(
            |(drive, number, counted, started, status, error, verdict)| {
                Record::Attempt(Attempt {
                    drive,
                    id: AttemptId::for_test(1),
                    number,
                    counted,
                    started_at: at(started),
                    duration_us: 1,
                    status,
                    headers: Vec::new(),
                    body: Vec::new(),
                    error,
                    detail: None,
                    verdict,
                    hold_until: None,
                    trace: None,
                })
            },
        );
    let reason = prop_oneof![Just(ParkReason::Fault), Just(ParkReason::NoRoom)];
    let parked = (drive.clone(), reason, 0..3_i64).prop_map(|(drive, reason, due)| {
        Record::Parked(Parked {
            drive,
            reason,
            next_attempt_at: at(due),
        })
    });
    let reason = prop_oneof![Just(SkipReason::Paused), Just(SkipReason::Deleted)];
    let skipped =
        (drive, reason).prop_map(|(drive, reason)| Record::Skipped(Skipped { drive, reason }));
    prop_oneof![3 => attempt, 2 => parked, 1 => skipped]
}

fn all(records: &[Record]) -> Option<Change> {
    records.iter().map(Change::of).reduce(Change::merge)
}

proptest! {
    #[test]
    fn any_order_and_any_repetition_says_the_same(
        (records, shuffled) in prop::collection::vec(record(), 1..6)
            .prop_flat_map(|records| (Just(records.clone()), Just(records).prop_shuffle()))
    ) {
        let expected = all(&records);
        prop_assert_eq!(all(&shuffled), expected.clone());
        prop_assert_eq!(all(&[records, shuffled].concat()), expected);
    }

    #[test]
    fn halves_merged_say_the_same_as_the_whole(
        records in prop::collection::vec(record(), 2..6), at in 1..5_usize
    ) {
        let at = at.min(records.len() - 1);
        let halves = all(&records[..at]).zip(all(&records[at..])).map(|(a, b)| a.merge(b));
        prop_assert_eq!(halves, all(&records));
    }

    #[test]
    fn its_state_is_the_merge_rules(records in prop::collection::vec(record(), 1..6)) {
        let states = records.iter().map(|record| Change::of(record).state).reduce(merge::merge);
        prop_assert_eq!(all(&records).map(|change| change.state), states);
    }
}

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn end(made: i64, sequence: u64, now: i64) -> Seen {
    Seen::End {
        created: at(made),
        sequence,
        at: at(now),
    }
}

fn rest(made: i64, left: bool) -> Seen {
    Seen::Rest {
        created: at(made),
        left,
    }
}

#[test]
fn each_end_is_noted_only_after_the_stage_before_is_done() {
    let mut machine = Machine::new(Duration::from_secs(10));
    assert_eq!(machine.ask(), Ask::EventsEnd);
    assert_eq!(machine.see(end(1, 50, 100)), Step::Next);
    assert_eq!(machine.ask(), Ask::EventsRest { at_or_below: 50 });
    assert_eq!(machine.see(rest(1, true)), Step::Wait);
    assert_eq!(machine.ask(), Ask::EventsRest { at_or_below: 50 });
    assert_eq!(machine.see(rest(1, false)), Step::Next);
    assert_eq!(machine.ask(), Ask::DeliveriesEnd);
    assert_eq!(machine.see(end(2, 60, 130)), Step::Next);
    assert_eq!(machine.see(rest(2, false)), Step::Next);
    assert_eq!(machine.ask(), Ask::RecordsEnd);
    assert_eq!(machine.see(end(3, 7, 150)), Step::Next);
    assert_eq!(machine.ask(), Ask::RecordsRest { at_or_below: 7 });
    // The time is that of the beginning, less the grace.
    let horizon = Horizon {
        not_after: at(90),
        driven_before: at(90),
    };
    assert_eq!(machine.see(rest(3, false)), Step::Lost(horizon));
    assert_eq!(machine.ask(), Ask::EventsEnd);
}

#[test]
fn a_stream_made_anew_is_done_whatever_it_holds() {
    let mut machine = Machine::new(Duration::from_secs(10));
    machine.see(end(1, 50, 100));
    assert_eq!(machine.see(rest(99, true)), Step::Next);
    assert_eq!(machine.ask(), Ask::DeliveriesEnd);
}

#[test]
fn an_answer_to_another_question_proves_nothing() {
    let mut machine = Machine::new(Duration::from_secs(10));
    assert_eq!(machine.see(rest(1, false)), Step::Wait);
    machine.see(end(1, 50, 100));
    assert_eq!(machine.see(end(1, 51, 101)), Step::Wait);
    assert_eq!(machine.ask(), Ask::EventsRest { at_or_below: 50 });
}

//! The order of publishing: events of one entity one after the other, of different ones together.

use std::collections::HashMap;

use hooklane_store::inbox::Publication;

/// Splits rows into rounds in which no entity stands twice; an entity's rows keep their order from
/// round to round, and the others theirs within a round. What has no entity goes first.
pub(super) fn rounds(rows: Vec<Publication>) -> Vec<Vec<Publication>> {
    let mut rounds: Vec<Vec<Publication>> = Vec::new();
    let mut before: HashMap<Lane, usize> = HashMap::new();
    for row in rows {
        let round = match lane(&row) {
            None => 0,
            Some(lane) => {
                let next = before.entry(lane).or_default();
                *next += 1;
                *next - 1
            }
        };
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        rounds[round].push(row);
    }
    rounds
}

/// What keeps its order.
pub(super) type Lane = (String, String, String);

pub(super) fn lane(row: &Publication) -> Option<Lane> {
    let (kind, key) = row.hand_off.entity.clone()?;
    Some((row.hand_off.partner.to_string(), kind, key))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use hooklane_proto::id::InboxId;
    use hooklane_proto::token::Partner;
    use hooklane_store::inbox::{HandOff, Headers};

    use super::*;

    fn row(position: i64, key: Option<&str>) -> Publication {
        Publication {
            position,
            hand_off: HandOff {
                id: InboxId::for_test(1),
                partner: Partner::new("shop").unwrap(),
                partner_event_id: position.to_string(),
                event_type: "order.paid".to_owned(),
                entity: key.map(|key| ("order".to_owned(), key.to_owned())),
                sequence: None,
                integrity: "full".to_owned(),
                content_type: None,
                headers: Headers(Vec::new()),
                body: Bytes::new(),
                received_at: hooklane_core::clock::now(),
                attempt: 1,
            },
        }
    }

    #[test]
    fn an_entity_stands_once_in_a_round_and_in_its_order() {
        let keys = [
            Some("a"),
            None,
            Some("a"),
            Some("b"),
            None,
            Some("a"),
            Some("b"),
        ];
        let rows = (1..).zip(keys).map(|(position, key)| row(position, key));
        let split: Vec<Vec<i64>> = rounds(rows.collect())
            .iter()
            .map(|round| round.iter().map(|row| row.position).collect())
            .collect();
        assert_eq!(split, [vec![1, 2, 4, 5], vec![3, 7], vec![6]]);
        assert_eq!(rounds(Vec::new()).len(), 0);
    }
}

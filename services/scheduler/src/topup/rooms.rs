//! How an answer about room becomes claims of bounded size. Pure.

use std::collections::HashSet;

use hooklane_proto::id::EndpointId;
use hooklane_proto::room::Reply;
use hooklane_store::topup::Room;

/// Cuts an answer into claims of at most `limit` deliveries. Rooms that were not asked for, or of
/// zero, are left out; a larger room than `limit` is cut to it, and what is beyond waits for the
/// next round.
pub(super) fn claims(asked: &[EndpointId], reply: Reply, limit: u32) -> Vec<Vec<Room>> {
    let mut open: HashSet<EndpointId> = asked.iter().copied().collect();
    let mut claims: Vec<Vec<Room>> = Vec::new();
    let mut left = 0;
    for room in reply.rooms {
        if room.room == 0 || !open.remove(&room.endpoint) {
            continue;
        }
        let room = Room {
            endpoint: room.endpoint,
            room: room.room.min(limit),
        };
        match claims.last_mut() {
            Some(claim) if room.room <= left => {
                left -= room.room;
                claim.push(room);
            }
            _ => {
                left = limit - room.room;
                claims.push(vec![room]);
            }
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use hooklane_proto::room;

    use super::*;

    fn cut(rooms: &[(u64, u32)], limit: u32) -> Vec<Vec<(u64, u32)>> {
        let asked: Vec<EndpointId> = (1..=4).map(EndpointId::for_test).collect();
        let rooms = rooms
            .iter()
            .map(|&(n, room)| room::Room {
                endpoint: EndpointId::for_test(n),
                room,
            })
            .collect();
        claims(&asked, Reply { rooms }, limit)
            .into_iter()
            .map(|claim| {
                let number = |id| (1..=9).find(|n| EndpointId::for_test(*n) == id).unwrap();
                claim
                    .iter()
                    .map(|room| (number(room.endpoint), room.room))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn a_claim_never_exceeds_its_limit() {
        assert_eq!(
            cut(&[(1, 4), (2, 6), (3, 1), (4, 50)], 10),
            [vec![(1, 4), (2, 6)], vec![(3, 1)], vec![(4, 10)]]
        );
    }

    #[test]
    fn only_what_was_asked_for_is_claimed_and_only_once() {
        assert_eq!(cut(&[(7, 3), (1, 2), (1, 2), (2, 0)], 10), [vec![(1, 2)]]);
        assert!(cut(&[], 10).is_empty());
    }
}

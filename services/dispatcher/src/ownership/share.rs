//! How many partitions each dispatcher should have. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Free partitions to take.
    pub(super) take: Vec<u16>,
    /// A partition to ask its owner for.
    pub(super) ask: Option<u16>,
    /// How many we have.
    pub(super) has: u16,
}

/// What `me` does, given who owns what and what runs here already (which may be in the list or
/// not yet, or not any more).
pub(super) fn plan<'a>(
    partitions: u16,
    me: &str,
    owners: &[(u16, &str)],
    running: impl Iterator<Item = &'a u16>,
) -> Plan {
    let mine: BTreeSet<u16> = running.copied().collect();
    let mut others: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    let mut taken = mine.clone();
    for &(partition, owner) in owners {
        taken.insert(partition);
        if owner != me {
            others.entry(owner).or_default().push(partition);
        }
    }
    let live = u16::try_from(others.len() + 1).unwrap_or(u16::MAX);
    let even = partitions.div_ceil(live);
    let has = u16::try_from(mine.len()).unwrap_or(u16::MAX);
    let missing = usize::from(even.saturating_sub(has));
    // Everybody begins elsewhere, so that dispatchers that start together rarely want the same.
    let first = offset(me, partitions);
    let take: Vec<u16> = (0..partitions)
        .map(|n| (n + first) % partitions)
        .filter(|partition| !taken.contains(partition))
        .take(missing)
        .collect();
    let richest = others.values().max_by_key(|list| list.len());
    let ask = richest
        .filter(|list| take.is_empty() && should_hand_over(len(list), has))
        .and_then(|list| list.get(usize::from(first) % list.len()).copied());
    Plan { take, ask, has }
}

/// Whether an owner of so many gives one to somebody who has so few: only if both are nearer to
/// even afterwards.
pub(super) fn should_hand_over(ours: u16, theirs: u16) -> bool {
    ours > theirs.saturating_add(1)
}

fn len(list: &[u16]) -> u16 {
    u16::try_from(list.len()).unwrap_or(u16::MAX)
}

fn offset(name: &str, partitions: u16) -> u16 {
    let sum = name.bytes().fold(0u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    u16::try_from(sum % u64::from(partitions.max(1))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn alone_it_takes_everything() {
        let plan = plan(4, "a", &[], [].iter());
        let mut take = plan.take.clone();
        take.sort_unstable();
        assert_eq!((take, plan.ask), (vec![0, 1, 2, 3], None));
    }

    #[test]
    fn a_newcomer_asks_who_has_most() {
        let owners = [(0, "a"), (1, "a"), (2, "a"), (3, "b")];
        let plan = plan(4, "c", &owners, [].iter());
        assert!(plan.take.is_empty());
        assert!(plan.ask.is_some_and(|p| p < 3), "{plan:?}");
    }

    #[test]
    fn even_shares_are_left_alone() {
        let owners = [(0, "a"), (1, "a"), (2, "b")];
        assert_eq!(plan(3, "b", &owners, [2].iter()).ask, None);
    }

    proptest! {
        #[test]
        fn shares_get_even_and_stay_so(partitions in 1..40u16, count in 1..6usize, seed in any::<u64>()) {
            let names: Vec<String> = (0..count).map(|n| format!("d{n}-{seed}")).collect();
            let mut owner: BTreeMap<u16, usize> = BTreeMap::new();
            for round in 0..400usize {
                // One after the other acts, in an order that depends on the seed.
                let me = (round.wrapping_mul(7).wrapping_add(seed as usize)) % count;
                let list: Vec<(u16, &str)> =
                    owner.iter().map(|(&p, &o)| (p, names[o].as_str())).collect();
                let mine: Vec<u16> =
                    owner.iter().filter(|&(_, &o)| o == me).map(|(&p, _)| p).collect();
                let plan = plan(partitions, &names[me], &list, mine.iter());
                for partition in plan.take {
                    prop_assert!(owner.insert(partition, me).is_none());
                }
                if let Some(partition) = plan.ask {
                    let theirs = owner[&partition];
                    let ours = owner.values().filter(|&&o| o == theirs).count() as u16;
                    if should_hand_over(ours, plan.has) {
                        owner.insert(partition, me);
                    }
                }
            }
            prop_assert_eq!(owner.len(), usize::from(partitions));
            let counts: Vec<usize> =
                (0..count).map(|n| owner.values().filter(|&&o| o == n).count()).collect();
            let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            prop_assert!(max - min <= 1, "{counts:?}");
        }
    }
}

//! Which partition a consumer's subjects belong to.
//!
//! Owns our own copy of the broker's hash: a stream's subject transform `partition(P, 1)` takes
//! 32-bit FNV-1a of the token modulo P, and the relay, the scheduler and the dispatcher must
//! agree with it without asking. A test against a real broker holds the two together.

use std::num::NonZeroU16;

const OFFSET_BASIS: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// The partition, 0 to `partitions - 1`, of a consumer's subjects.
#[must_use]
pub fn partition(partitions: NonZeroU16, consumer: &str) -> u16 {
    let bucket = fnv1a(consumer.as_bytes()) % u32::from(partitions.get());
    // Below `partitions`, so it fits.
    u16::try_from(bucket).unwrap_or(0)
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(OFFSET_BASIS, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(partitions: u16, consumer: &str) -> u16 {
        partition(NonZeroU16::new(partitions).unwrap(), consumer)
    }

    #[test]
    fn hash_agrees_with_the_published_vectors() {
        for (text, hash) in [
            ("", 0x811c_9dc5),
            ("a", 0xe40c_292c),
            ("b", 0xe70c_2de5),
            ("foobar", 0xbf9c_f968),
            ("hello", 0x4f9f_2cab),
        ] {
            assert_eq!(fnv1a(text.as_bytes()), hash, "{text}");
        }
    }

    #[test]
    fn partition_is_the_hash_modulo_their_number() {
        assert_eq!(of(16, "foobar"), 8);
        assert_eq!(of(16, "a"), 12);
        assert_eq!(of(10, "a"), u16::try_from(0xe40c_292c_u32 % 10).unwrap());
        assert_eq!(of(1, "anybody"), 0);
    }

    #[test]
    fn consumers_spread_over_all_partitions() {
        let mut sizes = [0_u32; 16];
        for n in 0..16_000 {
            sizes[usize::from(of(16, &format!("consumer-{n}")))] += 1;
        }
        assert!(
            sizes.iter().all(|size| (700..1300).contains(size)),
            "{sizes:?}"
        );
    }

    proptest! {
        #[test]
        fn partition_is_always_below_their_number(partitions in 1..=u16::MAX, consumer in "[A-Za-z0-9_-]{1,64}") {
            prop_assert!(of(partitions, &consumer) < partitions);
        }
    }
}

//! Trace context as it travels: the two headers of W3C Trace Context.

use serde::{Deserialize, Serialize};

/// A W3C trace context, kept as its header text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceContext {
    /// `traceparent`, 55 bytes of ASCII.
    pub traceparent: String,
    /// `tracestate`, at most 512 bytes; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tracestate: String,
}

impl TraceContext {
    /// Takes a context from outside. `None` where `traceparent` is not of version 00's form; a
    /// `tracestate` that is too long or not printable ASCII is dropped, as the specification says.
    #[must_use]
    pub fn parse(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let bytes = traceparent.as_bytes();
        let hex = |range: std::ops::Range<usize>| {
            bytes[range]
                .iter()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
        };
        let formed = bytes.len() == 55
            && bytes[2] == b'-'
            && bytes[35] == b'-'
            && bytes[52] == b'-'
            && hex(0..2)
            && hex(3..35)
            && hex(36..52)
            && hex(53..55)
            && &bytes[0..2] != b"ff"
            && bytes[3..35].iter().any(|&b| b != b'0')
            && bytes[36..52].iter().any(|&b| b != b'0');
        let tracestate = tracestate
            .filter(|state| state.len() <= 512 && state.bytes().all(|b| (0x20..0x7f).contains(&b)))
            .unwrap_or_default();
        formed.then(|| Self {
            traceparent: traceparent.to_owned(),
            tracestate: tracestate.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn malformed_parents_are_refused() {
        assert!(TraceContext::parse(GOOD, None).is_some());
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        ] {
            assert!(TraceContext::parse(bad, None).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_state_with_a_line_break_is_dropped() {
        let context = TraceContext::parse(GOOD, Some("a=b\r\nHost: x")).unwrap();
        assert_eq!(context.tracestate, "");
    }
}

//! Hex and base64, as partners write keys and signatures.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

/// Takes base64 with its padding and without; several partners hand out secrets without.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Two digits a byte, of either case.
    Hex,
    /// The standard alphabet, with or without padding.
    Base64,
}

impl Encoding {
    pub(crate) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => unhex(text),
            Self::Base64 => BASE64.decode(text).ok(),
        }
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(u32::from(n), 16).unwrap_or_default();
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|n| u8::try_from(n).ok())
    };
    text.as_bytes()
        .chunks(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_read_strictly_but_for_padding_and_case() {
        for (encoding, text, expected) in [
            (Encoding::Hex, "00fFa1", Some(&b"\x00\xFF\xA1"[..])),
            (Encoding::Hex, "", Some(b"")),
            (Encoding::Hex, "0", None),
            (Encoding::Hex, "0g", None),
            (Encoding::Hex, "+1", None),
            (Encoding::Hex, "é1", None),
            (Encoding::Base64, "aGk=", Some(b"hi")),
            (Encoding::Base64, "aGk", Some(b"hi")),
            (Encoding::Base64, "aGl=", None),
            (Encoding::Base64, "aGk= ", None),
            (Encoding::Base64, "aG-_", None),
        ] {
            assert_eq!(encoding.decode(text).as_deref(), expected, "{text}");
        }
        assert_eq!(hex(b"\x00\xFF\xA1"), "00ffa1");
    }
}

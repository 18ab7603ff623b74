//! Where signatures stand in a request, and how they are told from what is around them.

use http::HeaderName;

use super::Reject;
use super::encoding::Encoding;
use super::place::{Parts, Place, Unfit};

/// Most signatures of one request that are looked at: enough for every rotation, and little work
/// for a request that is made of signatures.
pub(crate) const MAX_SIGNATURES: usize = 16;

/// How a header is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// The value is the signature.
    Raw,
    /// The signature stands after this text.
    Prefix(String),
    /// Pairs, some of them signatures: `t=1,v1=ab,v1=cd`.
    Pairs {
        separator: char,
        assign: char,
        name: String,
    },
    /// Versions with a signature each: `v1,ab v1,cd v1a,ef`.
    List {
        separator: char,
        assign: char,
        version: String,
    },
}

/// Where a scheme's signatures are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) place: Place,
    pub(crate) grammar: Grammar,
    /// None: they are taken as they are, for tokens.
    pub(crate) encoding: Option<Encoding>,
}

impl Location {
    /// The header that it looks at, where it looks at one.
    pub(crate) fn header(&self) -> Option<&HeaderName> {
        match &self.place {
            Place::Header(name) => Some(name),
            _ => None,
        }
    }

    /// Every signature, decoded. A header that is there twice is two lists.
    ///
    /// # Errors
    /// [`Reject`] where there is none, or none that is written as it should be.
    pub(crate) fn signatures(&self, parts: &Parts<'_>) -> Result<Vec<Vec<u8>>, Reject> {
        let mut texts = Vec::new();
        if let Some(name) = self.header() {
            for value in parts.headers.get_all(name) {
                let value = value.to_str().map_err(|_| Reject::MalformedSignature)?;
                self.grammar.collect(value, &mut texts)?;
            }
            if texts.is_empty() && parts.headers.contains_key(name) {
                return Err(Reject::MalformedSignature);
            }
        } else {
            match parts.text(&self.place) {
                Ok(Some(text)) => self.grammar.collect(&text, &mut texts)?,
                Ok(None) => {}
                Err(Unfit::Repeated) => return Err(Reject::RepeatedPart),
                Err(Unfit::NoText) => return Err(Reject::MalformedSignature),
                Err(Unfit::NoJson(_)) => return Err(Reject::UnreadableBody),
            }
        }
        if texts.is_empty() {
            return Err(Reject::MissingSignature);
        }
        let decoded: Vec<_> = texts
            .iter()
            .filter_map(|text| match self.encoding {
                Some(encoding) => encoding.decode(text),
                None => Some(text.as_bytes().to_vec()),
            })
            .filter(|signature| !signature.is_empty())
            .collect();
        if decoded.is_empty() {
            Err(Reject::MalformedSignature)
        } else {
            Ok(decoded)
        }
    }
}

impl Grammar {
    fn collect(&self, value: &str, into: &mut Vec<String>) -> Result<(), Reject> {
        let named = |separator: char, assign: char, wanted: &str| -> Vec<String> {
            value
                .split(separator)
                .filter_map(|pair| pair.trim().split_once(assign))
                .filter(|(name, _)| *name == wanted)
                .map(|(_, signature)| signature.to_owned())
                .collect()
        };
        match self {
            Self::Raw => into.push(value.to_owned()),
            Self::Prefix(prefix) => into.extend(value.strip_prefix(&**prefix).map(str::to_owned)),
            Self::Pairs {
                separator,
                assign,
                name,
            } => into.extend(named(*separator, *assign, name)),
            Self::List {
                separator,
                assign,
                version,
            } => {
                into.extend(named(*separator, *assign, version));
            }
        }
        if into.len() > MAX_SIGNATURES {
            Err(Reject::TooManySignatures)
        } else {
            Ok(())
        }
    }
}

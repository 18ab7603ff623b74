//! Presets: how well-known partners sign, in files that read like a source's own block.

use serde::Deserialize;

use super::block::{ChallengeBlock, Format, SchemeBlock, SplitBlock};

/// A partner's way to sign, and where its events' ids and types are.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Preset {
    /// What the signature covers.
    pub(crate) covers: String,
    /// What it does not.
    pub(crate) not_covered: String,
    #[serde(default)]
    pub(crate) format: Format,
    #[serde(default)]
    pub(crate) event_id: Vec<String>,
    #[serde(default)]
    pub(crate) event_type: Vec<String>,
    pub(crate) scheme: Vec<SchemeBlock>,
    #[serde(default)]
    pub(crate) challenge: Vec<ChallengeBlock>,
    pub(crate) split: Option<SplitBlock>,
}

macro_rules! presets {
    ($($name:literal),+ $(,)?) => {
        /// Every preset's name and file, by name.
        const ALL: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../presets/", $name, ".toml")))),+
        ];
    };
}

presets![
    "adyen",
    "discord",
    "github",
    "gitlab",
    "gitlab-signed",
    "hubspot",
    "linear",
    "mailgun",
    "meta",
    "paddle",
    "paypal",
    "sendgrid",
    "shopify",
    "slack",
    "square",
    "standard-webhooks",
    "stripe",
    "svix",
    "twilio",
    "zoom",
];

/// Every preset's name, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// The preset of this name.
///
/// # Panics
/// Where the file that was built in can't be read, which a test rules out.
pub(crate) fn find(name: &str) -> Option<Preset> {
    let (_, text) = ALL.iter().find(|(known, _)| *known == name)?;
    Some(toml::from_str(text).expect("a test reads every preset"))
}

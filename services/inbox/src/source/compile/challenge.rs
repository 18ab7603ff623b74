//! Handshakes of a block or a preset.

use hooklane_core::config::Faults;
use http::{Method, StatusCode};

use super::{conditions, place};
use crate::source::block::{Block, ChallengeBlock};
use crate::source::challenge::{Challenge, Proof};
use crate::source::preset::Preset;
use crate::verify::key::{Algorithm, Key, KeyForm};
use crate::verify::place::Scope;

/// The block's, or the preset's where it has none.
pub(super) fn compile(
    block: &Block,
    preset: Option<&Preset>,
    faults: &mut Faults,
) -> Vec<Challenge> {
    let written = match preset {
        Some(preset) if block.challenge.is_empty() => &preset.challenge,
        _ => &block.challenge,
    };
    let mut challenges = Vec::new();
    for (index, one) in written.iter().enumerate() {
        let mut compiled = None;
        faults.within(format!("challenge.{index}"), |faults| {
            compiled = challenge(one, block, faults);
        });
        challenges.extend(compiled);
    }
    if written.iter().any(|one| !one.signed) && block.verify_token.is_none() {
        faults.add(
            "verify_token",
            "is not set",
            "make a token up, and give it here and to the partner",
        );
    }
    challenges
}

fn challenge(written: &ChallengeBlock, block: &Block, faults: &mut Faults) -> Option<Challenge> {
    let method = match written.method.as_str() {
        "GET" => Method::GET,
        "POST" => Method::POST,
        other => {
            faults.add(
                "method",
                format!("is `{other}`"),
                "set it to `GET` or `POST`",
            );
            return None;
        }
    };
    let status = StatusCode::from_u16(written.status)
        .ok()
        .filter(StatusCode::is_success);
    if status.is_none() {
        faults.add(
            "status",
            format!("is {}", written.status),
            "set it between 200 and 299",
        );
    }
    let whole = Scope::default();
    let value = written.value.as_ref();
    let value = value.and_then(|value| place("value", value, whole, faults));
    let proof = if written.signed {
        Some(Proof::Signature)
    } else if let Some(token) = &written.token {
        let at = place("token", token, whole, faults);
        let token = block.verify_token.as_ref().and_then(|token| {
            let key = Key::new(
                "verify_token",
                token.expose(),
                Algorithm::Token,
                KeyForm::Utf8,
            );
            key.map_err(|error| faults.add("", error.to_string(), "give a token"))
                .ok()
        });
        at.zip(token)
            .map(|(at, token)| Proof::Token(at, Box::new(token)))
    } else {
        faults.add(
            "token",
            "is not set",
            "say where the token is, or set `signed`",
        );
        None
    };
    let when = conditions("when", &written.when, faults);
    Some(Challenge {
        method,
        when,
        proof: proof?,
        value,
        status: status?,
        json: written.json,
        body: written.body.clone(),
    })
}

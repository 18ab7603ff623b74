//! What is wrong with a block's plain values.

use std::time::Duration;

use hooklane_core::config::Faults;

use crate::source::{Block, HandOff, Mode};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The slug, which is a word in addresses and subjects.
pub(super) fn slug(slug: &str, faults: &mut Faults) {
    let inner = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    let first = slug
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !first || slug.len() > 50 || !slug.bytes().all(inner) {
        faults.add(
            "",
            "has a name that can't be part of an address and a subject",
            "use 1 to 50 of a-z, 0-9, `_` and `-`, the first a letter or digit",
        );
    }
}

/// Sizes, durations, and the way to the adopter.
pub(super) fn limits(block: &Block, faults: &mut Faults) {
    let second = Duration::from_secs(1);
    faults.range("max_body", block.max_body, 1 << 10..=16 << 20);
    if let Some(tolerance) = block.tolerance {
        faults.duration("tolerance", tolerance, second..=7 * DAY);
    }
    faults.within("same_body", |faults| {
        faults.duration("within", block.same_body.within, Duration::ZERO..=30 * DAY);
    });
    faults.within("hand_off", |faults| hand_off(&block.hand_off, faults));
}

fn hand_off(hand_off: &HandOff, faults: &mut Faults) {
    let HandOff {
        mode,
        subject,
        url,
        within,
    } = hand_off;
    faults.duration(
        "within",
        *within,
        Duration::from_millis(100)..=Duration::from_secs(60),
    );
    match (mode, subject, url) {
        (Mode::Request, None, None) => faults.add(
            "mode",
            "is `request`, and nobody is named to ask",
            "set `subject` to a NATS subject, or `url` to an address",
        ),
        (Mode::Request, Some(_), Some(_)) => {
            faults.add(
                "subject",
                "is set, and so is `url`",
                "leave one of them out",
            );
        }
        (Mode::Request, ..) | (_, None, None) => {}
        (mode, ..) => {
            let key = if subject.is_some() { "subject" } else { "url" };
            let problem = format!("is of no use with the mode `{}`", mode.as_str());
            faults.add(key, problem, "leave it out, or set `mode` to `request`");
        }
    }
    if let Some(subject) = subject {
        let token = |token: &str| {
            let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'*' | b'>');
            !token.is_empty() && token.bytes().all(plain)
        };
        if subject.len() > 200 || !subject.split('.').all(token) || subject.starts_with('$') {
            faults.add(
                "subject",
                "is no subject to ask",
                "use words with dots between them, without `*`, `>` and white space",
            );
        }
    }
    if let Some(url) = url
        && (!url.username().is_empty() || url.password().is_some())
    {
        faults.add(
            "url",
            "has a name or password in it, which would be shown",
            "leave them out",
        );
    }
    if let Some(url) = url
        && (!matches!(url.scheme(), "http" | "https") || !url.has_host())
    {
        faults.add(
            "url",
            "is no address to ask",
            "give one with http:// or https://",
        );
    }
}

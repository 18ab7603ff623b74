//! One scheme of a block or a preset.

use hooklane_core::config::Faults;

use super::{PLACE, conditions, place};
use crate::read::json::Pointer;
use crate::source::block::{CertificateBlock, SchemeBlock, TimestampBlock};
use crate::source::secrets::Secrets;
use crate::source::{Block, GrammarName};
use crate::verify::certificate::{Certificates, Roots};
use crate::verify::key::{Algorithm, KeyForm};
use crate::verify::place::{Place, Scope};
use crate::verify::scheme::Scheme;
use crate::verify::signature::{Grammar, Location};
use crate::verify::template::Template;
use crate::verify::timestamp::Timestamp;

/// Compiles one. Its keys are those of the secrets that fit it, which may be none.
pub(super) fn compile(
    written: &SchemeBlock,
    block: &Block,
    secrets: &mut Secrets,
    faults: &mut Faults,
) -> Option<Scheme> {
    let signature = location(written, faults);
    let pairs = signature
        .as_ref()
        .and_then(|location| match &location.grammar {
            Grammar::Pairs {
                separator, assign, ..
            } => Some((location.header()?, *separator, *assign)),
            _ => None,
        });
    let scope = Scope {
        timestamp: None,
        pairs,
    };
    let timestamp = written.timestamp.as_ref();
    let timestamp = timestamp.and_then(|one| self::timestamp(one, block, scope, faults));
    let scope = Scope {
        timestamp: timestamp.as_ref().map(|one| &one.place),
        pairs,
    };
    let content = content(written, scope, faults);
    let digest = written.digest.as_ref();
    let digest = digest.and_then(|text| place("digest", text, scope, faults));
    let each = written.each.as_ref().and_then(|text| {
        let fault = |error| faults.add("each", format!("{error}"), PLACE);
        Pointer::parse(text).map_err(fault).ok()
    });
    let certificates = certificates(written, block, faults);
    if !written.algorithm.forms().contains(&written.key) {
        let problem = format!("does not go with `{}`", written.algorithm.as_str());
        faults.add("key", problem, "see the algorithm's forms of keys");
        return None;
    }
    let keys = match written.key {
        KeyForm::X509 => Vec::new(),
        form => secrets.keys(written.algorithm, form),
    };
    let scheme = Scheme {
        label: written.label.clone(),
        when: conditions("when", &written.when, faults),
        require: conditions("require", &written.require, faults),
        addresses: addresses(content.as_ref()?, block, written.url_ports),
        signature: signature?,
        algorithm: written.algorithm,
        content: content?,
        timestamp,
        digest,
        each,
        keys,
        certificates,
    };
    check_cover(&scheme, faults);
    Some(scheme)
}

fn location(written: &SchemeBlock, faults: &mut Faults) -> Option<Location> {
    let place = place("signature", &written.signature, Scope::default(), faults)?;
    if !matches!(place, Place::Header(_) | Place::Json { .. }) {
        faults.add(
            "signature",
            "is neither a header nor in a JSON body",
            "name such a place",
        );
        return None;
    }
    let SchemeBlock {
        separator,
        assign,
        name,
        prefix,
        ..
    } = written;
    let (separator, assign) = (*separator, *assign);
    let unnamed = matches!(written.grammar, GrammarName::Kv | GrammarName::List) && name.is_empty();
    if unnamed {
        faults.add(
            "name",
            "is not set",
            "name the pairs, or the version, that are signatures",
        );
    }
    if written.grammar == GrammarName::Prefix && prefix.is_empty() {
        faults.add(
            "prefix",
            "is not set",
            "say what stands before the signature",
        );
    }
    let grammar = match written.grammar {
        GrammarName::Raw => Grammar::Raw,
        GrammarName::Prefix => Grammar::Prefix(prefix.clone()),
        GrammarName::Kv => Grammar::Pairs {
            separator,
            assign,
            name: name.clone(),
        },
        GrammarName::List => Grammar::List {
            separator,
            assign,
            version: name.clone(),
        },
    };
    let encoding = written.encoding;
    match (written.algorithm, encoding) {
        (Algorithm::Token, Some(_)) => {
            faults.add("encoding", "is of no use with `token`", "leave it out");
        }
        (Algorithm::Token, None) | (_, Some(_)) => {}
        (_, None) => faults.add("encoding", "is not set", "set it to `hex` or `base64`"),
    }
    Some(Location {
        place,
        grammar,
        encoding,
    })
}

fn timestamp(
    written: &TimestampBlock,
    block: &Block,
    scope: Scope<'_>,
    faults: &mut Faults,
) -> Option<Timestamp> {
    let place = place("timestamp.from", &written.from, scope, faults)?;
    let tolerance = |preset| block.tolerance.unwrap_or(preset);
    Some(Timestamp {
        place,
        unit: written.unit,
        past: tolerance(written.past),
        future: tolerance(written.future),
    })
}

fn content(written: &SchemeBlock, scope: Scope<'_>, faults: &mut Faults) -> Option<Template> {
    match (written.algorithm, written.content.as_str()) {
        (Algorithm::Token, "") => {}
        (Algorithm::Token, _) => {
            faults.add("content", "is of no use with `token`", "leave it out");
        }
        (_, "") => faults.add(
            "content",
            "is not set",
            "say what is signed, such as `{ts}.{raw}`",
        ),
        _ => {}
    }
    let fix = "write places in braces, such as `{ts}.{raw}`";
    Template::parse(&written.content, scope)
        .map_err(|problem| faults.add("content", problem, fix))
        .ok()
}

fn certificates(written: &SchemeBlock, block: &Block, faults: &mut Faults) -> Option<Certificates> {
    let Some(CertificateBlock { address, domain }) = &written.certificate else {
        if written.key == KeyForm::X509 {
            faults.add(
                "certificate",
                "is not set",
                "say where its address is, and its domain",
            );
        }
        return None;
    };
    if written.key != KeyForm::X509 {
        faults.add(
            "certificate",
            "is of no use without the key form `x509`",
            "leave it out",
        );
        return None;
    }
    let roots = Roots::load(block.ca_file.as_deref());
    if roots.is_none() {
        faults.add(
            "certificate",
            "can't be checked: there are no root certificates",
            "install the system's, or name a PEM file with `ca_file`",
        );
    }
    let domain = domain.to_ascii_lowercase();
    if !domain.contains('.') || domain.starts_with('.') {
        faults.add(
            "certificate.domain",
            "is no domain",
            "give one such as `paypal.com`",
        );
    }
    let address = place("certificate.address", address, Scope::default(), faults)?;
    Some(Certificates {
        address,
        domain,
        roots: roots?,
    })
}

/// A signature that says nothing of the body is a password that anybody on the way can use, and so is a
/// digest that isn't signed itself.
fn check_cover(scheme: &Scheme, faults: &mut Faults) {
    let of_body = |place: &Place| {
        matches!(
            place,
            Place::Raw | Place::FormSorted | Place::Crc32 | Place::Json { .. }
        )
    };
    let token = scheme.algorithm == Algorithm::Token;
    if !token && scheme.digest.is_none() && !scheme.content.places().any(of_body) {
        faults.add(
            "content",
            "says nothing of the body",
            "add `{raw}`, or what is signed of it",
        );
    }
    if scheme
        .digest
        .as_ref()
        .is_some_and(|place| !scheme.covers(place))
    {
        faults.add("digest", "is not signed", "name it in `content` too");
    }
    if let Some(timestamp) = &scheme.timestamp
        && !(scheme.names(&timestamp.place) || scheme.covers(&timestamp.place))
    {
        faults.add(
            "timestamp.from",
            "is not signed",
            "name `{ts}` in `content`, or leave it out",
        );
    }
}

/// The address as the partner may have written it: as it is configured, and with the port of its
/// scheme added or its port taken away.
fn addresses(content: &Template, block: &Block, ports: bool) -> Vec<String> {
    let signed = content
        .places()
        .any(|p| matches!(p, Place::Url | Place::UrlUnescaped));
    let Some(url) = block.public_url.as_ref().filter(|_| signed) else {
        return Vec::new();
    };
    let mut addresses = vec![url.clone()];
    if let Some((scheme, rest)) = url.split_once("://").filter(|_| ports) {
        let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        addresses.push(match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => {
                format!("{scheme}://{name}{path}")
            }
            _ => {
                let port = if scheme == "https" { 443 } else { 80 };
                format!("{scheme}://{host}:{port}{path}")
            }
        });
    }
    addresses
}

/// What schemes need of the block beside secrets.
pub(super) fn check_needs(schemes: &[Scheme], block: &Block, faults: &mut Faults) {
    let places = || schemes.iter().flat_map(|scheme| scheme.content.places());
    let wants_url = places().any(|p| matches!(p, Place::Url | Place::UrlUnescaped));
    match &block.public_url {
        None if wants_url => faults.add(
            "public_url",
            "is not set, and the partner signs the address that it calls",
            "set it to that address, byte for byte, without its query",
        ),
        Some(url) if wants_url => {
            let parsed = url::Url::parse(url);
            let http = parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
            if !http || url.contains(['?', '#', ' ']) {
                faults.add(
                    "public_url",
                    "is no address with http:// or https:// and without a query",
                    "give the address that the partner calls up to its `?`; the query is the \
                     request's own",
                );
            }
        }
        _ => {}
    }
    for place in places() {
        if let Place::Param(name) = place
            && block.parameters.get(name).is_none_or(String::is_empty)
        {
            let key = format!("parameters.{name}");
            faults.add(
                &key,
                "is not set, and the partner signs it",
                "give it as the partner shows it",
            );
        }
    }
}

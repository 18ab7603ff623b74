//! From a block to a source, with everything that is wrong with it.

use hooklane_core::config::Faults;
use http::Method;

use super::challenge::Challenge;
use super::preset::{self, Preset};
use super::secrets::Secrets;
use super::{Block, Integrity, Source};
use crate::read::Rules;
use crate::verify::key::KeyForm;
use crate::verify::place::{Place, Scope};
use crate::verify::scheme::{Condition, Expected, Scheme};
use crate::verify::template::Template;

mod challenge;
mod check;
mod entity;
mod scheme;

/// Longest text about what is covered, in bytes: it goes into a header.
const MAX_COVERED: usize = 400;
/// How a place is written.
const PLACE: &str =
    "write it as `header:x-event`, `json:/data/id`, `form:name`, `query:name` or `param:name`";
/// How a template is written.
const TEMPLATE: &str =
    "write places in braces, such as `{json:/type}` or `{header:x-event}.{json:/action}`";

/// Compiles a block.
pub(super) fn compile(slug: &str, block: &Block, faults: &mut Faults) -> Option<Source> {
    let before = faults.found().len();
    check::slug(slug, faults);
    check::limits(block, faults);
    let preset = look_up(block, faults);
    let preset = preset.as_ref();
    let format = block
        .format
        .or(preset.map(|preset| preset.format))
        .unwrap_or_default();
    let mut warnings = Vec::new();
    let mut secrets = Secrets::gather(block, faults, &mut warnings);
    let schemes = schemes(block, preset, &mut secrets, faults);
    let challenges = challenge::compile(block, preset, faults);
    let rules = Rules {
        event_type: of_preset(&block.event_type, preset, |p| &p.event_type)
            .templates("event_type", faults),
        split: entity::split(block, preset, faults),
        entities: entity::compile(block, faults, &mut warnings),
    };
    let event_id =
        of_preset(&block.event_id, preset, |p| &p.event_id).templates("event_id", faults);
    let integrity = integrity(block, preset, &schemes, faults);
    let methods = methods(block, &challenges, faults);
    let proofs = schemes
        .iter()
        .filter_map(|scheme| scheme.signature.header().cloned())
        .collect();
    (faults.found().len() == before).then(|| Source {
        slug: slug.to_owned(),
        enabled: block.enabled,
        warnings,
        max_body: block.max_body as usize,
        methods,
        integrity,
        hand_off: block.hand_off.clone(),
        same_body: block.same_body.clone(),
        parameters: block.parameters.clone(),
        format,
        schemes,
        challenges,
        event_id,
        rules,
        proofs,
    })
}

fn look_up(block: &Block, faults: &mut Faults) -> Option<Preset> {
    let fix = || {
        let names: Vec<_> = preset::names().collect();
        format!(
            "give one of {}, or a `scheme` of your own",
            names.join(", ")
        )
    };
    match &block.preset {
        Some(name) => {
            let found = preset::find(name);
            if found.is_none() {
                faults.add("preset", format!("is `{name}`, which there is not"), fix());
            }
            found
        }
        None => {
            if block.scheme.is_empty() {
                faults.add("preset", "is not set", fix());
            }
            None
        }
    }
}

/// A list of the block, or the preset's where that is empty.
struct Texts<'t>(&'t [String]);

fn of_preset<'t>(
    own: &'t [String],
    preset: Option<&'t Preset>,
    field: impl FnOnce(&'t Preset) -> &'t Vec<String>,
) -> Texts<'t> {
    match preset {
        Some(preset) if own.is_empty() => Texts(field(preset)),
        _ => Texts(own),
    }
}

impl Texts<'_> {
    fn templates(&self, key: &str, faults: &mut Faults) -> Vec<Template> {
        let texts = self.0.iter().enumerate();
        texts
            .filter_map(|(index, text)| template(&format!("{key}.{index}"), text, faults))
            .collect()
    }
}

/// A template of what the ledger keeps of an event.
fn template(key: &str, text: &str, faults: &mut Faults) -> Option<Template> {
    match Template::parse(text, Scope::default()) {
        Ok(template) => {
            if template.places().any(Place::needs_request) {
                faults.add(
                    key,
                    "names the address, the query or the method, which are not kept with an event",
                    "name a header or a place in the body",
                );
            }
            Some(template)
        }
        Err(problem) => {
            faults.add(key, problem, TEMPLATE);
            None
        }
    }
}

fn place(key: &str, text: &str, scope: Scope<'_>, faults: &mut Faults) -> Option<Place> {
    Place::parse(text, scope)
        .map_err(|problem| faults.add(key, problem, PLACE))
        .ok()
}

fn conditions<'c>(
    key: &str,
    written: impl IntoIterator<Item = (&'c String, &'c String)>,
    faults: &mut Faults,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (text, value) in written {
        let is = match value.as_str() {
            "*" => Expected::Something,
            "" => Expected::Nothing,
            text => Expected::Text(text.to_owned()),
        };
        if let Some(place) = place(key, text, Scope::default(), faults) {
            conditions.push(Condition { place, is });
        }
    }
    conditions
}

fn schemes(
    block: &Block,
    preset: Option<&Preset>,
    secrets: &mut Secrets,
    faults: &mut Faults,
) -> Vec<Scheme> {
    let written = match preset {
        Some(preset) if block.scheme.is_empty() => &preset.scheme,
        _ => &block.scheme,
    };
    let mut schemes = Vec::new();
    for (index, one) in written.iter().enumerate() {
        let mut compiled = None;
        faults.within(format!("scheme.{index}"), |faults| {
            compiled = scheme::compile(one, block, secrets, faults);
        });
        schemes.extend(compiled);
    }
    scheme::check_needs(&schemes, block, faults);
    if secrets.is_empty() {
        let wanted = written.iter().any(|scheme| scheme.key != KeyForm::X509);
        let given = block.secrets.len() + block.secret_files.len() > 0;
        if wanted && !given {
            faults.add(
                "secrets",
                "is empty, so that nobody could be told from the partner",
                "give the secret that the partner shows, here or in a file of `secret_files`",
            );
        }
    } else if !written.is_empty() {
        secrets.report(faults);
    }
    schemes.retain(|scheme| !scheme.keys.is_empty() || scheme.certificates.is_some());
    schemes
}

fn integrity(
    block: &Block,
    preset: Option<&Preset>,
    schemes: &[Scheme],
    faults: &mut Faults,
) -> Integrity {
    let own = preset.filter(|_| block.scheme.is_empty());
    let text = |given: &Option<String>, preset: Option<&String>, otherwise: &str| {
        given
            .as_ref()
            .or(preset)
            .map_or_else(|| otherwise.to_owned(), Clone::clone)
    };
    let full = !schemes.is_empty() && schemes.iter().all(Scheme::covers_body);
    let covers = text(
        &block.covers,
        own.map(|p| &p.covers),
        "what the scheme says",
    );
    let not_covered = if full {
        "what the scheme doesn't name"
    } else {
        "the body, as a whole"
    };
    let not_covered = text(&block.not_covered, own.map(|p| &p.not_covered), not_covered);
    for (key, text) in [("covers", &covers), ("not_covered", &not_covered)] {
        let visible = text.bytes().all(|b| matches!(b, b' '..=b'~'));
        if text.is_empty() || text.len() > MAX_COVERED || !visible {
            let fix =
                format!("say it in 1 to {MAX_COVERED} characters of ASCII: it goes into a header");
            faults.add(key, "does not fit into a header", fix);
        }
    }
    Integrity {
        full,
        covers,
        not_covered,
    }
}

fn methods(block: &Block, challenges: &[Challenge], faults: &mut Faults) -> Vec<Method> {
    let mut methods = Vec::new();
    for (index, text) in block.methods.iter().enumerate() {
        let method = match text.as_str() {
            "POST" => Method::POST,
            "PUT" => Method::PUT,
            other => {
                let problem = format!("is `{other}`");
                faults.add(
                    &format!("methods.{index}"),
                    problem,
                    "set it to `POST` or `PUT`",
                );
                continue;
            }
        };
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    if block.methods.is_empty() {
        faults.add(
            "methods",
            "is empty",
            "set it to `[\"POST\"]`, or leave it out",
        );
    }
    for challenge in challenges {
        if !methods.contains(&challenge.method) {
            methods.push(challenge.method.clone());
        }
    }
    methods
}

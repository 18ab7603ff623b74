//! Places: where in a request something stands, such as `header:x-github-event` or
//! `json:/data/id`.
//!
//! Owns how they are written and how they are looked up. One that is there twice is an error and
//! not the first or the last of them, since the partner's reader may have chosen the other.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, Method, header};
use ring::digest;

use super::crc32::crc32;
use super::encoding;
use crate::read::form;
use crate::read::json::{Node, NotJson, Pointer, Scalar};
use crate::source::Format;

/// Where something stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// `raw`: the body's bytes.
    Raw,
    /// `url`: the public address with the request's query.
    Url,
    /// `url_unescaped`: the same, with the escapes undone that HubSpot undoes.
    UrlUnescaped,
    /// `method`.
    Method,
    /// `form_sorted`: names and values of the form, sorted, with nothing between them.
    FormSorted,
    /// `crc32`: of the body, in decimal digits.
    Crc32,
    /// `body_sha256`: of the body, in hex.
    BodySha256,
    /// `json:/pointer`; with `json?:`, nothing there is the empty text.
    Json { pointer: Pointer, optional: bool },
    /// `header:name`.
    Header(HeaderName),
    /// `form:name`.
    Form(String),
    /// `query:name`.
    Query(String),
    /// `param:name`: from the source's `parameters`.
    Param(String),
    /// `kv:name`: a pair of the signature's header.
    Pair {
        header: HeaderName,
        separator: char,
        assign: char,
        name: String,
    },
}

/// What `ts` and `kv:` stand for: known once the scheme is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scope<'s> {
    pub(crate) timestamp: Option<&'s Place>,
    /// The signature's header, and what separates its pairs, and a name from its value.
    pub(crate) pairs: Option<(&'s HeaderName, char, char)>,
}

/// A place that holds no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is there more than once.
    Repeated,
    /// It can't be held as text.
    NoText,
    /// The body it should be in can't be read.
    NoJson(NotJson),
}

impl Place {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong, as the rest of a sentence.
    pub(crate) fn parse(text: &str, scope: Scope<'_>) -> Result<Self, String> {
        let Some((kind, name)) = text.split_once(':') else {
            return match text {
                "raw" => Ok(Self::Raw),
                "url" => Ok(Self::Url),
                "url_unescaped" => Ok(Self::UrlUnescaped),
                "method" => Ok(Self::Method),
                "form_sorted" => Ok(Self::FormSorted),
                "crc32" => Ok(Self::Crc32),
                "body_sha256" => Ok(Self::BodySha256),
                "ts" => scope
                    .timestamp
                    .cloned()
                    .ok_or_else(|| "names `ts`, and no `timestamp` says where that is".to_owned()),
                _ => Err(format!("names `{text}`, which is no place in a request")),
            };
        };
        let json = |optional| match Pointer::parse(name) {
            Ok(pointer) => Ok(Self::Json { pointer, optional }),
            Err(error) => Err(format!("names `{name}`, which {error}")),
        };
        match kind {
            "json" => json(false),
            "json?" => json(true),
            "header" => name
                .parse()
                .map(Self::Header)
                .map_err(|_| format!("names `{name}`, which is no header's name")),
            "form" => Ok(Self::Form(name.to_owned())),
            "query" => Ok(Self::Query(name.to_owned())),
            "param" => Ok(Self::Param(name.to_owned())),
            "kv" => match scope.pairs {
                Some((header, separator, assign)) => {
                    let header = header.clone();
                    let name = name.to_owned();
                    Ok(Self::Pair {
                        header,
                        separator,
                        assign,
                        name,
                    })
                }
                None => Err(format!(
                    "names `{text}`, and the signature's grammar is not `kv`"
                )),
            },
            _ => Err(format!("names `{text}`, which is no place in a request")),
        }
    }

    /// Whether it needs what only a request has, and the ledger doesn't keep.
    pub(crate) fn needs_request(&self) -> bool {
        matches!(
            self,
            Self::Url | Self::UrlUnescaped | Self::Method | Self::Query(_)
        )
    }
}

/// A request, or a part of one, to look things up in.
pub(crate) struct Parts<'a> {
    pub(crate) method: Option<&'a Method>,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    parameters: &'a BTreeMap<String, String>,
    format: Format,
    json: OnceCell<Result<Node<'a>, NotJson>>,
}

impl<'a> Parts<'a> {
    pub(crate) fn new(
        headers: &'a HeaderMap,
        body: &'a [u8],
        parameters: &'a BTreeMap<String, String>,
        format: Format,
    ) -> Self {
        Self {
            method: None,
            query: None,
            headers,
            body,
            parameters,
            format,
            json: OnceCell::new(),
        }
    }

    /// An item of a batch, with the batch's headers.
    pub(crate) fn item(&self, node: Node<'a>) -> Self {
        let mut item = Self::new(self.headers, node.raw(), self.parameters, Format::Json);
        item.json = OnceCell::from(Ok(node));
        item
    }

    /// The body as JSON, whatever its format is.
    ///
    /// # Errors
    /// [`NotJson`].
    pub(crate) fn json(&self) -> Result<Node<'a>, NotJson> {
        *self.json.get_or_init(|| Node::document(self.body))
    }

    /// Whether the body is to be read as a form.
    pub(crate) fn is_form(&self) -> bool {
        match self.format {
            Format::Form => true,
            Format::Json | Format::Any => false,
            Format::Auto => form::is_one(self.body),
        }
    }

    /// Whether the request says that its body is a form.
    pub(crate) fn says_form(&self) -> bool {
        let value = self.headers.get(header::CONTENT_TYPE);
        let essence = value.and_then(|value| value.to_str().ok()?.split(';').next());
        essence.is_some_and(|essence| {
            essence
                .trim()
                .eq_ignore_ascii_case("application/x-www-form-urlencoded")
        })
    }

    /// What stands at a place; none where nothing does. Not for `raw` and the address, which
    /// belong to what is signed.
    ///
    /// # Errors
    /// [`Unfit`].
    pub(crate) fn text(&self, place: &Place) -> Result<Option<Cow<'_, str>>, Unfit> {
        match place {
            Place::Raw | Place::Url | Place::UrlUnescaped | Place::FormSorted => Ok(None),
            Place::Method => Ok(self.method.map(|method| method.as_str().into())),
            Place::Crc32 => Ok(Some(crc32(self.body).to_string().into())),
            Place::BodySha256 => {
                let hash = digest::digest(&digest::SHA256, self.body);
                Ok(Some(encoding::hex(hash.as_ref()).into()))
            }
            Place::Json { pointer, .. } => self.json_text(pointer),
            Place::Header(name) => self.header(name).map(|text| text.map(Into::into)),
            Place::Form(name) if self.is_form() => field(self.body, name),
            Place::Form(_) => Ok(None),
            Place::Query(name) => field(self.query.unwrap_or_default().as_bytes(), name),
            Place::Param(name) => Ok(self.parameters.get(name).map(|text| text.as_str().into())),
            Place::Pair {
                header,
                separator,
                assign,
                name,
            } => {
                let text = self.header(header)?.unwrap_or_default();
                let mut found = None;
                for pair in text.split(*separator) {
                    let value = pair.trim().split_once(*assign);
                    let value = value.and_then(|(key, value)| (key == name).then_some(value));
                    if value.is_some() && std::mem::replace(&mut found, value).is_some() {
                        return Err(Unfit::Repeated);
                    }
                }
                Ok(found.map(Into::into))
            }
        }
    }

    /// Whether a place in JSON holds nothing at all, and not an object or array, which have no text.
    pub(crate) fn is_void(&self, pointer: &Pointer) -> bool {
        let found = self.json().ok().and_then(|root| root.at(pointer).ok());
        found.is_some_and(|node| node.is_none_or(|node| node.raw() == b"null"))
    }

    fn json_text(&self, pointer: &Pointer) -> Result<Option<Cow<'_, str>>, Unfit> {
        if self.is_form() {
            return Ok(None);
        }
        let root = match self.json() {
            Ok(root) => root,
            Err(_) if self.format == Format::Any => return Ok(None),
            Err(error) => return Err(Unfit::NoJson(error)),
        };
        let node = root.at(pointer).map_err(|_| Unfit::Repeated)?;
        match node.and_then(|node| node.scalar()) {
            Some(Scalar::Text(text)) => Ok(Some(text)),
            Some(Scalar::NoText) => Err(Unfit::NoText),
            None => Ok(None),
        }
    }

    /// A header that is there once, in visible ASCII.
    fn header(&self, name: &HeaderName) -> Result<Option<&'a str>, Unfit> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next();
        if values.next().is_some() {
            return Err(Unfit::Repeated);
        }
        first
            .map(|value| value.to_str().map_err(|_| Unfit::NoText))
            .transpose()
    }
}

fn field(form: &[u8], name: &str) -> Result<Option<Cow<'static, str>>, Unfit> {
    let mut values = form::values(form, name);
    let first = values.next();
    if values.next().is_some() {
        return Err(Unfit::Repeated);
    }
    first
        .map(|value| {
            String::from_utf8(value)
                .map(Into::into)
                .map_err(|_| Unfit::NoText)
        })
        .transpose()
}

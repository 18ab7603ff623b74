//! Which class an error of the HTTP client is of, found by types and never by texts.

use std::error::Error as StdError;
use std::io;

use hooklane_core::rules::outcome::ErrorClass;

use super::resolver::ResolveError;

/// Longest detail, in characters.
const MAX_DETAIL: usize = 500;

/// `errno`s that say that this host is out of something (Linux): file descriptors of the process
/// or the host, local addresses, buffers, memory.
const EXHAUSTED: [i32; 5] = [24, 23, 99, 105, 12];

/// An attempt without an answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) class: ErrorClass,
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(class: ErrorClass, detail: impl Into<String>) -> Self {
        Self {
            class,
            detail: detail.into(),
        }
    }
}

/// What an error of the client means. The URL is left out of the detail: its query may hold a
/// secret.
pub(super) fn failure(error: reqwest::Error) -> Failure {
    let error = error.without_url();
    let class = class(&error);
    Failure::new(class, detail(&error))
}

fn class(error: &reqwest::Error) -> ErrorClass {
    let connecting = error.is_connect();
    let mut at: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = at {
        if let Some(class) = known(error, connecting) {
            return class;
        }
        at = error.source();
    }
    match (connecting, error.is_timeout()) {
        (true, true) => ErrorClass::ConnectTimeout,
        (false, true) => ErrorClass::Timeout,
        _ => ErrorClass::Io,
    }
}

fn known(error: &(dyn StdError + 'static), connecting: bool) -> Option<ErrorClass> {
    if let Some(error) = error.downcast_ref::<ResolveError>() {
        return Some(error.class());
    }
    if error.is::<rustls::Error>() {
        return Some(ErrorClass::Tls);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error, connecting);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        return of_hyper(error);
    }
    None
}

fn of_io(error: &io::Error, connecting: bool) -> Option<ErrorClass> {
    // An `io::Error` made around another error is not that error's parent in the chain.
    if let Some(inner) = error.get_ref() {
        let inner: &(dyn StdError + 'static) = inner;
        let mut at = Some(inner);
        while let Some(error) = at {
            if let Some(class) = known(error, connecting) {
                return Some(class);
            }
            at = error.source();
        }
    }
    if error
        .raw_os_error()
        .is_some_and(|code| EXHAUSTED.contains(&code))
    {
        return Some(ErrorClass::OwnFault);
    }
    Some(match error.kind() {
        io::ErrorKind::ConnectionRefused => ErrorClass::ConnectRefused,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => ErrorClass::Unreachable,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory => ErrorClass::OwnFault,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected => ErrorClass::Reset,
        // The handshake is the only thing that is read before a request is sent.
        io::ErrorKind::UnexpectedEof if connecting => ErrorClass::Tls,
        io::ErrorKind::UnexpectedEof => ErrorClass::Reset,
        io::ErrorKind::TimedOut if connecting => ErrorClass::ConnectTimeout,
        io::ErrorKind::TimedOut => ErrorClass::Timeout,
        _ => return None,
    })
}

fn of_hyper(error: &hyper::Error) -> Option<ErrorClass> {
    if error.is_parse() {
        return Some(ErrorClass::BadResponse);
    }
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        return Some(ErrorClass::Reset);
    }
    // With no cause and nothing of the above it is the one kind that has no name: bytes that came
    // before anything was asked, as servers of other protocols greet.
    let unasked = error.source().is_none() && !error.is_user() && !error.is_timeout();
    unasked.then_some(ErrorClass::BadResponse)
}

fn detail(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut at: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = at {
        let part = error.to_string();
        // Wrappers repeat what they wrap.
        if !text.ends_with(&part) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&part);
        }
        at = error.source();
    }
    match text.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_host_runs_out_of_is_our_own_fault() {
        for code in EXHAUSTED {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(of_io(&error, true), Some(ErrorClass::OwnFault), "{error}");
        }
    }

    #[test]
    fn an_error_inside_an_io_error_is_found() {
        let refused = io::Error::other(ResolveError::Down);
        assert_eq!(of_io(&refused, true), Some(ErrorClass::OwnFault));
        let tls = io::Error::other(rustls::Error::HandshakeNotComplete);
        assert_eq!(of_io(&tls, true), Some(ErrorClass::Tls));
    }

    #[test]
    fn where_a_connection_breaks_decides_its_class() {
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(of_io(&eof, true), Some(ErrorClass::Tls));
        assert_eq!(of_io(&eof, false), Some(ErrorClass::Reset));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(of_io(&refused, true), Some(ErrorClass::ConnectRefused));
        let unreachable = io::Error::from(io::ErrorKind::NetworkUnreachable);
        assert_eq!(of_io(&unreachable, true), Some(ErrorClass::Unreachable));
    }
}

//! `hooklane check-url`: whether an endpoint's URL would be accepted, and connected to.

use std::net::IpAddr;

use clap::Args;
use hooklane_core::error::ErrorCode;
use hooklane_core::rules::address;
use serde::Serialize;
use tokio::net::lookup_host;

use crate::config::Section;
use crate::context::Context;
use crate::failure::Failure;

/// Say whether an endpoint's URL would be accepted and connected to.
#[derive(Debug, Args)]
pub(crate) struct CheckUrl {
    /// The URL.
    url: String,
    /// Don't resolve its host's name.
    #[arg(long)]
    no_resolve: bool,
}

#[derive(Debug, Serialize)]
struct Answer {
    url: String,
    addresses: Vec<IpAddr>,
}

impl CheckUrl {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let policy = context.config(&[Section::Addresses])?.addresses;
        let refused = |refusal: address::Refusal| {
            Failure::new(ErrorCode::ForbiddenAddress, format!("refused: {refusal}"))
        };
        let url = address::check_url(&self.url, &policy).map_err(refused)?;
        let mut addresses = Vec::new();
        if !self.no_resolve {
            let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
            let port = url.port_or_known_default().unwrap_or(443);
            let found = lookup_host((host, port)).await.map_err(|error| {
                Failure::data(format!(
                    "`{host}` can't be resolved ({error}); check the name"
                ))
            })?;
            addresses = found.map(|address| address.ip()).collect();
            addresses.sort_unstable();
            addresses.dedup();
            for ip in &addresses {
                address::check_ip(*ip, &policy).map_err(refused)?;
            }
        }
        let answer = Answer {
            url: url.to_string(),
            addresses,
        };
        context.output.print(&answer, || {
            let list: Vec<String> = answer.addresses.iter().map(ToString::to_string).collect();
            match list.is_empty() {
                true => format!("accepted: {}", answer.url),
                false => format!("accepted: {} at {}", answer.url, list.join(", ")),
            }
        })
    }
}

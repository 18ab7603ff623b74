//! Dead letters with their payloads, a JSON object a line.

mod file;

use std::path::PathBuf;

use hooklane_store::dead_letter::{Filter, Listed, Order};
use serde::Serialize;

use super::{known, whole};
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::progress;
use file::Pending;

/// Dead letters listed at a time.
const PAGE: u32 = 500;
/// Bytes of payload in memory at a time; a single larger one comes alone.
const BYTES: u64 = 8 << 20;

#[derive(Debug, Serialize)]
struct Exported {
    exported: u64,
    file: String,
}

pub(super) async fn run(
    context: &Context,
    filter: &Filter,
    to: Option<PathBuf>,
    force: bool,
) -> Result<(), Failure> {
    let mut file = to.map(|path| Pending::create(path, force)).transpose()?;
    let store = context.store().await?;
    known(&store, filter).await?;
    let bar = progress::bar("exporting", None, context.output.json);
    let mut exported = 0;
    let mut after = None;
    loop {
        let page = store
            .dead_letters(filter, Order::OldestFirst, after, PAGE)
            .await?;
        for part in parts(&page.items) {
            let mut lines = Vec::new();
            for letter in whole(&store, part).await? {
                let line = serde_json::to_string(&letter).map_err(|error| {
                    Failure::internal(format!("a dead letter has no JSON form: {error}"))
                })?;
                lines.extend_from_slice(line.as_bytes());
                lines.push(b'\n');
                exported += 1;
            }
            match &mut file {
                Some(file) => file.write(&lines)?,
                None => output::bytes(&lines)?,
            }
            bar.set_position(exported);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    if let Some(file) = file {
        let path = file.finish()?;
        let answer = Exported {
            exported,
            file: path.display().to_string(),
        };
        return context.output.print(&answer, || {
            format!("{exported} exported to {}", answer.file)
        });
    }
    Ok(())
}

/// A page cut into parts that fit into memory.
fn parts(listed: &[Listed]) -> Vec<&[Listed]> {
    let mut parts = Vec::new();
    let mut begin = 0;
    let mut bytes = 0;
    for (at, letter) in listed.iter().enumerate() {
        bytes += u64::from(letter.bytes.unsigned_abs());
        if bytes > BYTES && at > begin {
            parts.push(&listed[begin..at]);
            begin = at;
            bytes = u64::from(letter.bytes.unsigned_abs());
        }
    }
    if begin < listed.len() {
        parts.push(&listed[begin..]);
    }
    parts
}

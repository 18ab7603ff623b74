//! Dead letters with their payloads, a JSON object a line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hooklane_store::dead_letter::{Filter, Listed, Order};
use serde::Serialize;

use super::view::Letter;
use super::whole;
use crate::context::Context;
use crate::failure::Failure;
use crate::output;
use crate::progress;

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
) -> Result<(), Failure> {
    let store = context.store().await?;
    let mut file = to.as_deref().map(create).transpose()?;
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
                let line = serde_json::to_string(&Letter::from(letter)).map_err(|error| {
                    Failure::internal(format!("a dead letter has no JSON form: {error}"))
                })?;
                lines.extend_from_slice(line.as_bytes());
                lines.push(b'\n');
                exported += 1;
            }
            match (&mut file, &to) {
                (Some(file), Some(path)) => {
                    file.write_all(&lines)
                        .map_err(|error| unwritable(path, &error))?;
                }
                _ => output::bytes(&lines)?,
            }
            bar.set_position(exported);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    bar.finish_and_clear();
    if let (Some(mut file), Some(path)) = (file, to) {
        file.flush().map_err(|error| unwritable(&path, &error))?;
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

fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    let file = File::create(path).map_err(|error| unwritable(path, &error))?;
    Ok(BufWriter::new(file))
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::data(format!(
        "{} can't be written ({error}); name a file that can be",
        path.display()
    ))
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

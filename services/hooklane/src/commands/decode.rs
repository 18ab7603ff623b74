//! `hooklane decode`: records from the wire as JSON lines, so that MessagePack reads in
//! `nats … --translate 'hooklane decode'`.

use std::path::PathBuf;

use clap::Args;
use hooklane_proto::decode::records;

use super::input;
use crate::failure::Failure;
use crate::output;

/// Read records (MessagePack) and print them as JSON lines.
#[derive(Debug, Args)]
pub(crate) struct Decode {
    /// Files with one message's body each (- for standard input).
    #[arg(default_value = "-")]
    files: Vec<PathBuf>,
}

impl Decode {
    pub(crate) fn run(self) -> Result<(), Failure> {
        for path in &self.files {
            let bytes = input::read(path)?;
            let values = records(&bytes)
                .map_err(|error| Failure::data(format!("{}: {error}", path.display())))?;
            for value in values {
                output::line(&value.to_string())?;
            }
        }
        Ok(())
    }
}

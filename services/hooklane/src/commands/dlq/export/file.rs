//! A file that appears once it is whole: written beside its place, for its owner alone, and renamed
//! at the end. One that is dropped before leaves nothing.

use std::io::{BufWriter, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

use hooklane_core::error::ErrorCode;
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Pending {
    path: PathBuf,
    replace: bool,
    file: BufWriter<NamedTempFile>,
}

impl Pending {
    /// Begins to write what becomes `path`.
    ///
    /// # Errors
    /// Where a file is there that is not to be replaced, or none can be made.
    pub(super) fn create(path: PathBuf, replace: bool) -> Result<Self, Failure> {
        // A link stays, and what it leads to is replaced.
        let path = path.canonicalize().unwrap_or(path);
        match path.metadata() {
            Ok(found) if !found.is_file() => {
                return Err(Failure::data(format!(
                    "{} is no file; leave --output out to write to standard output",
                    path.display()
                )));
            }
            Ok(_) if !replace => return Err(there(&path)),
            _ => {}
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let made = tempfile::Builder::new()
            .prefix(".hooklane-export-")
            .suffix(".part")
            .tempfile_in(folder);
        let file = made.map_err(|error| unwritable(&path, &error))?;
        Ok(Self {
            path,
            replace,
            file: BufWriter::new(file),
        })
    }

    /// Writes on.
    ///
    /// # Errors
    /// Where it can't be written.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file
            .write_all(bytes)
            .map_err(|error| unwritable(&self.path, &error))
    }

    /// Puts the file into its place, once it is on disk, and answers where that is.
    ///
    /// # Errors
    /// Where it can't be written, or a file has come there meanwhile.
    pub(super) fn finish(self) -> Result<PathBuf, Failure> {
        let Self {
            path,
            replace,
            file,
        } = self;
        let placed = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)
            .and_then(|file| file.as_file().sync_all().map(|()| file))
            .and_then(|file| {
                let placed = match replace {
                    true => file.persist(&path),
                    false => file.persist_noclobber(&path),
                };
                placed.map_err(|error| error.error)
            });
        match placed {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(there(&path)),
            Err(error) => Err(unwritable(&path, &error)),
        }
    }
}

fn there(path: &Path) -> Failure {
    Failure::new(
        ErrorCode::Conflict,
        format!(
            "{} is there already; name another file, or replace it with --force",
            path.display()
        ),
    )
}

fn unwritable(path: &Path, error: &Error) -> Failure {
    Failure::data(format!(
        "{} can't be written ({error}); name a file that can be",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_appears_whole_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters.jsonl");
        let mut pending = Pending::create(path.clone(), false).unwrap();
        pending.write(b"one\n").unwrap();
        assert!(!path.exists());
        pending.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn one_that_is_given_up_leaves_nothing_and_harms_none_that_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters.jsonl");
        std::fs::write(&path, "old").unwrap();
        let mut pending = Pending::create(path.clone(), true).unwrap();
        pending.write(b"half").unwrap();
        drop(pending);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_is_replaced_only_when_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters.jsonl");
        let late = Pending::create(path.clone(), false).unwrap();
        std::fs::write(&path, "old").unwrap();
        for refused in [late.finish().map(drop), {
            Pending::create(path.clone(), false).map(drop)
        }] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Conflict);
            assert!(refused.to_string().contains("--force"), "{refused}");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Pending::create(link.clone(), true)
            .unwrap()
            .finish()
            .unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        let device = Pending::create("/dev/null".into(), true).unwrap_err();
        assert!(device.to_string().contains("standard output"), "{device}");
    }
}

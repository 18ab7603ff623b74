//! The unprivileged account that PostgreSQL runs as when we are root, which it refuses to be.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User, chown};

use crate::error::{Doing, Error};

const NAMES: [&str; 3] = ["postgres", "hooklane", "nobody"];

/// An account other than root.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// The account for servers that refuse root; `None` when we aren't root and need none.
    pub(crate) fn for_servers() -> Result<Option<Self>, Error> {
        if !Uid::effective().is_root() {
            return Ok(None);
        }
        NAMES
            .iter()
            .find_map(|name| User::from_name(name).ok().flatten())
            .map(|user| {
                Some(Self {
                    name: user.name,
                    uid: user.uid.as_raw(),
                    gid: user.gid.as_raw(),
                })
            })
            .ok_or(Error::NoAccount)
    }

    /// Makes `command` run as this account. The standard library also drops our supplementary
    /// groups when it changes the user of a root process.
    pub(crate) fn apply(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    /// Whether this account can enter `dir`; tried, since modes alone miss ACLs and mounts.
    pub(crate) fn can_enter(&self, dir: &Path) -> bool {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", "cd -- \"$0\""])
            .arg(dir)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.apply(&mut command);
        command.status().is_ok_and(|status| status.success())
    }

    /// Gives `path` to this account.
    pub(crate) fn own(&self, path: &Path) -> Result<(), Error> {
        chown(path, Some(self.uid.into()), Some(self.gid.into()))
            .map_err(std::io::Error::from)
            .doing(|| format!("giving {} to {}", path.display(), self.name))
    }
}

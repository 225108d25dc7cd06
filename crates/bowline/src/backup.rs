//! Backups: one file with all that a gateway needs to go on, on this machine or another.
//!
//! `tar` is the container's layout, `manifest` what is inside, `archive` writes and checks the file,
//! `folder` knows what of a data folder belongs in it and puts it back, `draft` is the temporary
//! folder in which a backup is made. Commands print; nothing here does.

pub(crate) mod archive;
pub(crate) mod draft;
mod error;
pub(crate) mod folder;
pub(crate) mod manifest;
mod tar;

pub(crate) use error::BackupError;

use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes of the present step are done; another thread shows it.
#[derive(Debug, Default)]
pub(crate) struct Done(AtomicU64);

impl Done {
    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

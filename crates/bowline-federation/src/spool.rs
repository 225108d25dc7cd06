//! Where a bundle is kept while it comes: small ones in memory, larger ones in a file without a name.
//!
//! Bundles of slow peers would otherwise fill the memory; a file without a name is gone with the
//! process.

use std::io;
use std::path::PathBuf;

use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

/// Up to here it stays in memory, in bytes.
const IN_MEMORY: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
    memory: Vec<u8>,
    file: Option<File>,
    length: usize,
}

impl Spool {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, memory: Vec::new(), file: None, length: 0 }
    }

    pub(crate) async fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.length += piece.len();
        if self.file.is_none() && self.length <= IN_MEMORY {
            self.memory.extend_from_slice(piece);
            return Ok(());
        }
        if self.file.is_none() {
            let folder = self.folder.clone();
            let made = tokio::task::spawn_blocking(move || tempfile::tempfile_in(folder)).await;
            let mut file = File::from_std(made.map_err(io::Error::other)??);
            file.write_all(&std::mem::take(&mut self.memory)).await?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(piece).await,
            None => Ok(()),
        }
    }

    /// All of it.
    pub(crate) async fn whole(self) -> io::Result<Vec<u8>> {
        let Some(mut file) = self.file else { return Ok(self.memory) };
        file.flush().await?;
        file.rewind().await?;
        let mut whole = Vec::with_capacity(self.length);
        file.read_to_end(&mut whole).await?;
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_is_read_whether_or_not_it_fits_into_memory() {
        let folder = tempfile::tempdir().unwrap();
        for pieces in [0, 1, 16, 17, 40] {
            let mut spool = Spool::new(folder.path().to_owned());
            for n in 0..pieces {
                spool.write(&[n as u8; 64 << 10]).await.unwrap();
            }
            assert_eq!(spool.file.is_some(), pieces > 16);
            let whole = spool.whole().await.unwrap();
            assert_eq!(whole.len(), pieces * (64 << 10));
            let is_right = |(n, piece): (usize, &[u8])| piece.iter().all(|byte| *byte == n as u8);
            assert!(whole.chunks(64 << 10).enumerate().all(is_right));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
    }
}

//! The duration of a disk flush, to interpret figures that include flushes.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

/// About the size of a commit of the store.
const COMMIT: usize = 16 << 10;
/// The file is overwritten like the write-ahead log: a growing file is flushed more slowly.
const COMMITS: u64 = 64;

/// The durations of `count` flushes, with a pause between them.
pub(crate) fn flushes(folder: &Path, count: usize, pause: Duration) -> Result<Vec<Duration>> {
    let mut file = File::create(folder.join("flushes"))?;
    file.write_all(&vec![0; COMMIT * COMMITS as usize])?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(count);
    for n in 0..count {
        std::thread::sleep(pause);
        file.seek(SeekFrom::Start(n as u64 % COMMITS * COMMIT as u64))?;
        let begun = Instant::now();
        file.write_all(&[n as u8; COMMIT])?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

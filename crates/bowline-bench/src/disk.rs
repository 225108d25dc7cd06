//! What the disk takes for a flush, so that figures which hold some can be understood.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

/// About what a commit of the store writes.
const COMMIT: usize = 16 << 10;
/// Written over and over, as the store's log is: a file that grows is flushed more slowly.
const COMMITS: u64 = 64;

/// How long flushes take that come one by one, with these pauses between them.
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

//! Runs third-party SDKs, which are Python packages.

use std::path::PathBuf;

use tokio::sync::{Semaphore, SemaphorePermit};

/// A permit for tests that run Python: too many at once would slow each other's start too much.
pub(crate) async fn place() -> SemaphorePermit<'static> {
    static PLACES: Semaphore = Semaphore::const_new(2);
    PLACES.acquire().await.unwrap()
}

/// The interpreter for which `make tools` installs the SDKs.
pub(crate) fn python() -> PathBuf {
    let python = std::env::var_os("BOWLINE_TEST_PYTHON").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python"))
    });
    assert!(python.exists(), "{} is missing; `make tools` makes it", python.display());
    python
}

/// A script in this directory.
pub(crate) fn beside(file: &str) -> String {
    format!("{}/tests/it/{file}", env!("CARGO_MANIFEST_DIR"))
}

//! The real SDKs of others, which speak Python.

use std::path::PathBuf;

use tokio::sync::{Semaphore, SemaphorePermit};

/// A place among the tests that run Python: all at once, they would keep each other from starting.
pub(crate) async fn place() -> SemaphorePermit<'static> {
    static PLACES: Semaphore = Semaphore::const_new(2);
    PLACES.acquire().await.unwrap()
}

/// The interpreter that `make tools` puts the SDKs into.
pub(crate) fn python() -> PathBuf {
    let python = std::env::var_os("BOWLINE_TEST_PYTHON").map(PathBuf::from).unwrap_or_else(|| {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/python/bin/python"))
    });
    assert!(python.exists(), "{} is missing; `make tools` makes it", python.display());
    python
}

/// A program that lies beside these tests.
pub(crate) fn beside(file: &str) -> String {
    format!("{}/tests/it/{file}", env!("CARGO_MANIFEST_DIR"))
}

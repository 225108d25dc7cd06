//! Runs the contract tests with every backend. A new backend adds a module here.

/// Makes a test of each named function for each backend.
macro_rules! backends {
    ($($promise:ident)*) => {
        mod sqlite_keeps {
            use std::sync::Arc;

            use bowline_store::sqlite::Sqlite;

            $(#[tokio::test]
            async fn $promise() {
                let folder = tempfile::tempdir().unwrap();
                super::$promise(Arc::new(Sqlite::open(folder.path()).unwrap())).await;
            })*
        }

        mod postgres_keeps {
            use std::sync::Arc;

            $(#[tokio::test]
            async fn $promise() {
                super::$promise(Arc::new($crate::postgres_server::fresh().await)).await;
            })*
        }
    };
}

pub(crate) use backends;

//! Runs the contract tests with every bus. A new bus adds a line here.

use std::pin::Pin;
use std::sync::Arc;

use bowline_bus::{Bus, Fallback, Memory, Postgres, Redis};

use crate::servers;

pub(crate) type Making = Pin<Box<dyn Future<Output = Arc<dyn Bus>> + Send>>;
/// Makes buses that reach each other, as those of several processes do.
pub(crate) type Make = Arc<dyn Fn() -> Making + Send + Sync>;

/// Makes a test of each named function for each bus.
macro_rules! backends {
    ($($promise:ident)*) => {
        crate::backends::backend! { memory_keeps memory $($promise)* }
        crate::backends::backend! { redis_keeps redis $($promise)* }
        crate::backends::backend! { postgres_keeps postgres $($promise)* }
        crate::backends::backend! { fallback_keeps fallback $($promise)* }
    };
}

/// Makes a test of each named function for one bus.
macro_rules! backend {
    ($keeps:ident $backend:ident $($promise:ident)*) => {
        mod $keeps {
            $(#[tokio::test]
            async fn $promise() {
                super::$promise(crate::backends::$backend()).await;
            })*
        }
    };
}

pub(crate) use {backend, backends};

pub(crate) fn memory() -> Make {
    let memory = Memory::new();
    Arc::new(move || made(std::future::ready(memory.clone())))
}

pub(crate) fn redis() -> Make {
    Arc::new(|| made(async { Redis::new(&servers::redis(), "contract").unwrap() }))
}

pub(crate) fn postgres() -> Make {
    Arc::new(|| made(async { Postgres::connect(&servers::postgres()).await.unwrap() }))
}

pub(crate) fn fallback() -> Make {
    Arc::new(|| {
        made(async {
            let (redis, postgres) = (servers::redis(), servers::postgres());
            Fallback::connect(&redis, "fallback", &postgres).await.unwrap()
        })
    })
}

fn made<B: Bus>(bus: impl Future<Output = B> + Send + 'static) -> Making {
    Box::pin(async { Arc::new(bus.await) as Arc<dyn Bus> })
}

//! Daemons and clients that can be killed: each has its own tokio runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bowline_client::relay::{
    ClientConfig, ClientEvent, ControlPlane, DaemonConfig, DaemonEvent, KnownDaemons,
    LivenessConfig, RelayClient, RelayDaemon,
};
use bowline_sbrp::id::DaemonId;
use bowline_sbrp::identity::IdentitySecret;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::plant::runtime;
use super::record::{Progress, Record, talk};
use super::seed::Dice;
use crate::process::DEADLINE;

/// Shorter than by default, so that a silence is noticed while it lasts.
const LIVENESS: LivenessConfig =
    LivenessConfig::new(Duration::from_secs(1), Duration::from_secs(5));

/// A daemon or client in its own runtime, in place of a process.
pub(crate) struct Process {
    runtime: Option<Runtime>,
    stop: CancellationToken,
    program: Option<JoinHandle<()>>,
    pub(crate) progress: Arc<Progress>,
    /// How often the daemon came online, or the client got a session.
    pub(crate) arrivals: Arc<AtomicU64>,
}

impl Process {
    fn run<F: Future<Output = ()> + Send + 'static>(
        program: impl FnOnce(CancellationToken, Arc<Progress>, Arc<AtomicU64>) -> F,
    ) -> Self {
        let (stop, progress) = (CancellationToken::new(), Arc::<Progress>::default());
        let arrivals = Arc::<AtomicU64>::default();
        let runtime = runtime();
        let program =
            runtime.spawn(program(stop.clone(), Arc::clone(&progress), Arc::clone(&arrivals)));
        Self { runtime: Some(runtime), stop, program: Some(program), progress, arrivals }
    }

    /// Simulates kill -9.
    pub(crate) fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    /// Graceful shutdown.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let program = self.program.take().unwrap();
        tokio::time::timeout(DEADLINE, program).await.expect("it leaves in time").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A daemon's identity.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) id: DaemonId,
    pub(crate) seed: [u8; 32],
}

impl Identity {
    pub(crate) async fn register(plane: &ControlPlane, number: u8) -> Self {
        let seed = [number + 1; 32];
        let key = IdentitySecret::from_seed(&seed).public();
        let registered = plane.register(&key, None, true).await.unwrap();
        Self { id: DaemonId::new(registered.daemon_id), seed }
    }
}

pub(crate) fn daemon(
    plane: &ControlPlane,
    identity: &Identity,
    record: &Arc<Record>,
    mut dice: Dice,
) -> Process {
    let mut config = DaemonConfig::new(plane.clone(), IdentitySecret::from_seed(&identity.seed));
    config.liveness = LIVENESS;
    config.replaced_wait = Duration::from_secs(1);
    let record = Arc::clone(record);
    Process::run(move |stop, progress, arrivals| async move {
        let mut daemon = RelayDaemon::start(config);
        loop {
            let event = tokio::select! {
                event = daemon.next() => event,
                () = stop.cancelled() => return daemon.stop().await,
            };
            match event {
                Some(DaemonEvent::SessionOpened(session)) => {
                    let (record, progress) = (Arc::clone(&record), Arc::clone(&progress));
                    tokio::spawn(talk("daemon", session, record, progress, dice.fork()));
                }
                Some(DaemonEvent::Online { .. }) => {
                    arrivals.fetch_add(1, Relaxed);
                }
                Some(DaemonEvent::Lost { reason, retry_in }) => {
                    record.lost("daemon", &reason, retry_in)
                }
                Some(DaemonEvent::Closed(closed)) => {
                    return record.wrong(format!("a daemon gave up: {closed}"));
                }
                Some(_) => {}
                None => return,
            }
        }
    })
}

pub(crate) fn client(
    plane: &ControlPlane,
    identity: &Identity,
    record: &Arc<Record>,
    mut dice: Dice,
) -> Process {
    let mut config =
        ClientConfig::new(plane.clone(), identity.id.clone(), "daemon", KnownDaemons::nowhere());
    config.liveness = LIVENESS;
    let record = Arc::clone(record);
    Process::run(move |stop, progress, arrivals| async move {
        let mut client = RelayClient::connect(config);
        loop {
            let event = tokio::select! {
                event = client.next() => event,
                () = stop.cancelled() => return client.close().await,
            };
            match event {
                Some(ClientEvent::Established { session, .. }) => {
                    arrivals.fetch_add(1, Relaxed);
                    let (record, progress) = (Arc::clone(&record), Arc::clone(&progress));
                    tokio::spawn(talk("client", session, record, progress, dice.fork()));
                }
                Some(ClientEvent::Lost { reason, retry_in }) => {
                    record.lost("client", &reason, retry_in)
                }
                Some(ClientEvent::Closed(closed)) => {
                    return record.wrong(format!("a client gave up: {closed}"));
                }
                Some(_) => {}
                None => return,
            }
        }
    })
}

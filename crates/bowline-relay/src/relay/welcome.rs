//! From an upgraded request to a connection with a place in the harbour.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline_sbrp::control::{ControlCode, Role};
use bowline_sbrp::token::Admission;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Shared;
use super::connection::{Connection, Who};
use super::line::{Ending, Line, Room};
use super::serve::Place;
use super::stream::Stream;

/// Waits for the upgrade, moors the connection and serves it to its end.
pub(crate) async fn welcome(
    shared: Arc<Shared>,
    upgraded: OnUpgrade,
    admission: Admission,
    place: Place,
) {
    let timeout = shared.config.limits.header_timeout;
    let Ok(Ok(upgraded)) = tokio::time::timeout(timeout, upgraded).await else { return };
    let Ok(parts) = upgraded.downcast::<TokioIo<Stream>>() else { return };
    let (stream, read_ahead) = (parts.io.into_inner(), parts.read_buf);
    let role = match &admission {
        Admission::Daemon(_) => Role::Daemon,
        Admission::Client(_) => Role::Client,
    };
    let limits = &shared.config.limits;
    let frames = match role {
        Role::Client => limits.queue_frames,
        Role::Daemon => limits.daemon_queue_frames,
    };
    let room = Room { frames, bytes: limits.queue_bytes };
    let line = Arc::new(Line::new(shared.harbour.next_link(), role, room));
    let (harbour, meters) = (&shared.harbour, &shared.meters);
    let mut seat = None;
    let (dock, who) = match admission {
        Admission::Daemon(pass) => {
            let most = pass.concurrent_sessions.map_or(limits.daemon_sessions, u64::from);
            let dock = harbour
                .at(&pass.daemon, |dock| dock.daemon_came(&line, pass.resumable, most, meters));
            harbour.time(&dock, meters);
            (dock, Who::daemon())
        }
        Admission::Client(pass) => {
            let most = pass.concurrent_sessions.map_or(limits.user_sessions, u64::from);
            seat = harbour.seat(&pass.user, most);
            if seat.is_none() {
                line.tell(ControlCode::Forbidden, None);
                line.close(Ending::Told(ControlCode::Forbidden));
            }
            let dock = harbour.at(&pass.daemon, |dock| match seat {
                Some(_) => dock.client_came(&line, pass.session, meters),
                None => Ok(()),
            });
            (dock, Who::Client { session: pass.session })
        }
    };
    // Whoever comes while all are sent away is sent away, too.
    if shared.stopping.load(Ordering::Acquire) {
        line.close(Ending::Restart);
    }
    meters.came(role);
    let connection = Connection::new(stream, &read_ahead, line, dock, who, Arc::clone(&shared));
    drop(read_ahead);
    // In a box: what stands above is forgotten before the long life of a connection begins.
    Box::pin(connection.run()).await;
    shared.meters.went(role);
    drop((seat, place));
}

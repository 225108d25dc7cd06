//! Test fixture: what gateways sign, manifests and bundles.
//!
//! Also used by the tests of the gateway.

use std::sync::Arc;

use bowline_sbp::bundle::{Contents, MessagePart, Sealed, SessionPart};
use bowline_sbp::federation::{Endpoints, GatewayId, Manifest, Role};
use bowline_sbp::frame::TurnStatus;
use bowline_sbp::gateway_key::GatewayIdentity;
use bowline_sbp::message::{EntryKind, Message};
use jiff::Timestamp;

pub(crate) fn identity(n: u8) -> Arc<GatewayIdentity> {
    Arc::new(GatewayIdentity::from_seed(&[n; 32]))
}

pub(crate) fn id(name: &str) -> GatewayId {
    name.parse().unwrap()
}

pub(crate) fn manifest(name: &str, n: u8, role: Role) -> Manifest {
    Manifest {
        gateway_id: id(name),
        gateway_name: String::new(),
        role,
        key: identity(n).public(),
        url: "https://a.example".parse().unwrap(),
        endpoints: Endpoints::default(),
        issued_at: Timestamp::now().as_second(),
        previous: Vec::new(),
    }
}

/// A bundle of a session in which somebody said this.
pub(crate) fn bundle(said: &str) -> Contents {
    let session = SessionPart {
        id: "4f5c4f0e-0000-4000-8000-000000000001".into(),
        agent: "agent".into(),
        status: "idle".into(),
        last_task: None,
        created_at: Timestamp::UNIX_EPOCH,
        step_count: 1,
        metadata: None,
        instruction: None,
    };
    let message = MessagePart {
        kind: EntryKind::Message,
        message: Message::text("user", said),
        model: None,
        cost_usd: 0.0,
        created_at: Timestamp::UNIX_EPOCH,
        status: TurnStatus::Complete,
        agent_id: None,
        replaces: None,
        carried: None,
    };
    Contents {
        export_id: "e".into(),
        exported_at: Timestamp::UNIX_EPOCH,
        label: None,
        session,
        messages: vec![message],
        memory: None,
        snapshot: None,
        carried: None,
    }
}

pub(crate) fn sealed(said: &str, n: u8) -> Sealed {
    bundle(said).seal_signed(&identity(n))
}

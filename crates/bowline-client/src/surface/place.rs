//! Where a surface attaches, and how it follows its session to another gateway (SBP-L6-05).
//!
//! Invariants
//! - Nothing that was shown to one gateway is shown to another: neither the key nor the session's token.
//! - Only a URL to which a token may be sent is followed; one of this machine only from this machine.
//! - A surface that is sent on is sent back, too, if it comes too late: its attach token is valid for a minute, and
//!   once. Between two attachments it is sent on at most [`MOST_HOPS`] times.

use bowline_net::outbound;
use bowline_sbp::frame::{ClientFrame, SessionAttached, SessionMoved};
use url::Url;

use super::socket::Target;

/// The most gateways that send a surface on before one of them attaches it.
const MOST_HOPS: u32 = 8;

/// A session at a gateway, and what opens it there.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) target: Target,
    pub(super) attach: ClientFrame,
}

/// The place of now, and the one from which the surface was sent there.
pub(super) struct Places {
    here: Place,
    before: Option<Place>,
    hops: u32,
}

impl Places {
    pub(super) fn new(here: Place) -> Self {
        Self { here, before: None, hops: 0 }
    }

    pub(super) fn here(&self) -> &Place {
        &self.here
    }

    /// The surface was sent on. Whether it goes there.
    pub(super) fn follow(&mut self, moved: &SessionMoved) -> bool {
        let Some(place) = self.place_of(moved).filter(|_| self.hops < MOST_HOPS) else {
            return false;
        };
        self.hops += 1;
        self.before = Some(std::mem::replace(&mut self.here, place));
        true
    }

    /// The gateway does not let it in. Whether there is one that may send it on again.
    pub(super) fn go_back(&mut self) -> bool {
        match self.before.take() {
            Some(before) => {
                self.here = before;
                true
            }
            None => false,
        }
    }

    /// It is attached. Whether the session has come to this gateway by its roaming token: then it learns the id here.
    pub(super) fn attached(&mut self, attached: &SessionAttached) -> bool {
        self.hops = 0;
        self.before = None;
        let ClientFrame::Attach(attach) = &mut self.here.attach else { return false };
        if let Some(token) = &attached.session_token {
            attach.session_token.clone_from(token);
        }
        if attach.roaming_token.take().is_none() {
            return false;
        }
        attach.session_id = attached.session_id.to_string();
        self.here.target = self.here.target.clone().for_session(attached.session_id);
        true
    }

    fn place_of(&self, moved: &SessionMoved) -> Option<Place> {
        let token = moved.attach_token.clone()?;
        let ClientFrame::Attach(attach) = &self.here.attach else { return None };
        let url: Url = moved.url.parse().ok()?;
        // "On this machine" is said by a gateway of another machine.
        if !outbound::is_encrypted(&url) && !self.here.target.is_on_this_machine() {
            return None;
        }
        let mut attach = attach.clone();
        attach.session_id = moved.new_session_id.to_string();
        attach.session_token = token;
        attach.roaming_token = None;
        // What it took over is there: to take it over again would close its own surfaces.
        attach.take_over = false;
        let target = Target::of(&url, moved.new_session_id).ok()?;
        Some(Place { target, attach: ClientFrame::Attach(attach) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::surface::SurfaceConfig;
    use bowline_sbp::frame::Attach;
    use bowline_sbp::id::SessionId;
    use uuid::Uuid;

    fn places(gateway: &str) -> Places {
        let session = SessionId(Uuid::from_u128(1));
        let config = SurfaceConfig {
            bearer: Some("key".into()),
            ..SurfaceConfig::new(gateway.parse().unwrap(), session, "token")
        };
        let attach = Attach {
            session_id: session.to_string(),
            session_token: "token".into(),
            roaming_token: None,
            surface: Default::default(),
            sbp_version: None,
            join: true,
            take_over: true,
            explicit_ack: true,
            approves: false,
        };
        let target = Target::new(&config).ok().unwrap();
        Places::new(Place { target, attach: ClientFrame::Attach(attach) })
    }

    fn moved(url: &str, token: Option<&str>) -> SessionMoved {
        SessionMoved {
            session_id: SessionId(Uuid::from_u128(1)),
            new_session_id: SessionId(Uuid::from_u128(2)),
            gateway_id: "away".into(),
            url: url.into(),
            attach_token: token.map(str::to_owned),
            accepted: Vec::new(),
        }
    }

    #[test]
    fn sbp_l6_05_a_surface_shows_the_next_gateway_only_its_attach_token() {
        let mut places = places("https://home.example");
        assert!(places.follow(&moved("https://away.example", Some("once"))));
        let ClientFrame::Attach(attach) = &places.here().attach else { panic!() };
        assert_eq!(attach.session_token, "once");
        assert_eq!(attach.session_id, Uuid::from_u128(2).to_string());
        assert!(!attach.take_over && attach.join);
        assert!(!places.here().target.shows_a_key());
    }

    #[test]
    fn sbp_l6_05_a_surface_follows_only_where_a_token_may_be_sent() {
        let here = "http://127.0.0.1:1";
        let there = "https://home.example";
        for (gateway, url, token, follows) in [
            (there, "https://away.example", Some("once"), true),
            (there, "https://away.example", None, false),
            (there, "http://127.0.0.1:2", Some("once"), false),
            (here, "http://127.0.0.1:2", Some("once"), true),
            (here, "http://192.0.2.1:2", Some("once"), false),
        ] {
            let follow = places(gateway).follow(&moved(url, token));
            assert_eq!(follow, follows, "{gateway} {url} {token:?}");
        }
    }

    #[test]
    fn sbp_l6_05_a_surface_is_sent_on_so_many_times_and_no_more() {
        let mut places = places("https://home.example");
        let next = moved("https://away.example", Some("once"));
        for _ in 0..MOST_HOPS {
            assert!(places.follow(&next));
        }
        assert!(!places.follow(&next));
        assert!(places.go_back());
        assert!(!places.go_back(), "only one step");
    }
}

//! What a server says of itself to other gateways.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::came::Came;
use crate::check::{Check, must, ours, run};
use crate::federation::keys::{Key, MANIFEST};
use crate::trial::{Answer, As, Trial};
use crate::verdict::{Ended, Stop};

pub(super) const CHECKS: &[Check] = &[
    must(
        "SBP-L6-01",
        "the manifest says who the gateway is, where, and with which key",
        "GET /.well-known/sbp -> {sbp_version, gateway_id, gateway_name, role: \
         gateway|tracker|both, federation, public_key (base64 DER SPKI, Ed25519), endpoints{ws, \
         export, import, bundle, registry?}, signature}",
        run!(says_who),
    ),
    ours(
        "SBP-L6-01b",
        "the manifest is signed with the key that it names",
        "signature (ours: Ed25519 over `bowline-manifest-1:` and the canonical object)",
        run!(is_signed),
    ),
    must(
        "SBP-L6-07",
        "L7 is not claimed",
        "L7 (WebRTC) is reserved: never claim it",
        run!(no_seven),
    ),
];

const PATH: &str = "/.well-known/sbp";

/// A server that takes part in a federation.
pub(super) struct Manifest {
    pub(super) came: Came,
    pub(super) id: String,
    /// None, if it is of another type.
    key: Option<Key>,
}

impl Manifest {
    /// The server's; without one, nothing of a federation is known.
    pub(super) async fn of(t: &Trial) -> Result<Self, Stop> {
        let answer = t.get(PATH, As::Caller).await?;
        if answer.status != 200 {
            return Err(Stop::unable("the server has no manifest (SBP-L6-01)"));
        }
        Self::read(answer)
    }

    fn read(answer: Answer) -> Result<Self, Stop> {
        let came = answer.body;
        let text = came.text(&["/public_key"])?;
        let expected = "a key as base64 of DER SubjectPublicKeyInfo in `public_key`";
        came.holds(is_der(text), expected)?;
        let key = Key::from_spki(text);
        Ok(Self { id: came.text(&["/gateway_id"])?.to_owned(), key, came })
    }

    /// What its signatures are verified with. The protocol names no type of key; the suite has one.
    pub(super) fn key(&self) -> Result<Key, Stop> {
        self.key.ok_or_else(|| {
            Stop::unable(
                "the manifest's key is no Ed25519 key: the suite cannot verify its signatures",
            )
        })
    }

    pub(super) fn is_tracker(&self) -> bool {
        self.came.json["role"] == "tracker" || self.came.json["role"] == "both"
    }

    pub(super) fn is_gateway(&self) -> bool {
        self.came.json["role"] != "tracker"
    }

    /// The same, of a server that has sessions.
    pub(super) async fn of_gateway(t: &Trial) -> Result<Self, Stop> {
        let manifest = Self::of(t).await?;
        match manifest.is_gateway() {
            true => Ok(manifest),
            false => Err(Stop::unable("the server is a tracker, which has no bundles")),
        }
    }
}

/// Whether it is base64 of a DER sequence, as every SubjectPublicKeyInfo is.
fn is_der(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|der| der.first() == Some(&0x30))
}

async fn says_who(t: &Trial) -> Ended {
    let manifest = Manifest::read(t.get(PATH, As::Caller).await?.is(&[200])?)?;
    let came = &manifest.came;
    came.text(&["/sbp_version"])?;
    came.is(&["/federation"], true)?;
    let role = came.text(&["/role"])?;
    let known = ["gateway", "tracker", "both"].contains(&role);
    came.holds(known, "`role` = gateway, tracker or both")?;
    if manifest.is_gateway() {
        for (name, part) in
            [("ws", "{session_id}"), ("bundle", "{bundle_cid}"), ("import", "/import")]
        {
            let url = came.text(&[&format!("/endpoints/{name}")])?;
            came.holds(url.contains(part), &format!("{part} in `endpoints.{name}`"))?;
        }
    }
    if manifest.is_tracker() {
        came.text(&["/endpoints/registry"])?;
    }
    Ok(())
}

async fn is_signed(t: &Trial) -> Ended {
    let answer = t.get(PATH, As::Caller).await?.is(&[200])?;
    let text = answer.text.clone();
    let manifest = Manifest::read(answer)?;
    let signed = manifest.key()?.signed(MANIFEST, &text);
    manifest.came.holds(signed, "a `signature` of the key in `public_key`")
}

async fn no_seven(t: &Trial) -> Ended {
    let seven = |came: &Came| {
        let level = &came.json["sbp_level"];
        let text = level.as_str().map_or_else(|| level.to_string(), str::to_owned);
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        digits.parse().is_ok_and(|level: u32| level >= 7)
    };
    let expected = "a level up to L6 in `sbp_level`";
    let session = t.session().await?;
    let (socket, attached) = t.attach(&session, json!({})).await?;
    attached.holds(!seven(&attached), expected)?;
    socket.detach().await?;
    let manifest = t.get(PATH, As::Caller).await?.body;
    manifest.holds(!seven(&manifest), expected)
}

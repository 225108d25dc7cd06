//! Requests about paired devices: their owner sets them, they ask for session tokens themselves.

use std::net::IpAddr;

use bowline_sbrp::api::{DeviceKey, SessionOpened};
use bowline_sbrp::device_auth::{DeviceRequest, Unproven, VerifiedRequest};

use super::{ApiCaller, TokenIssuer};
use crate::control::clock;
use crate::control::config::SESSION_TTL;
use crate::control::registry::{self, Registry};
use crate::control::request_error::RequestError;

/// A device that asks for one of its daemons, which knew it when it asked
/// ([`TokenIssuer::authenticate_device`]).
#[derive(Debug, Clone)]
pub(in crate::control) struct DeviceCaller {
    from: IpAddr,
    asked: VerifiedRequest,
}

impl TokenIssuer {
    /// Replaces the devices of one of the caller's daemons.
    pub(in crate::control) async fn set_devices(
        &self,
        caller: ApiCaller,
        id: String,
        devices: Vec<DeviceKey>,
    ) -> Result<(), RequestError> {
        let now = clock::now();
        let job =
            move |registry: &mut Registry| registry.set_devices(&caller.key, &id, &devices, now);
        Ok(self.writer.ask(job).await?)
    }

    /// Checks a device's signature, then whether the daemon has the device. What is wrong is counted
    /// against the address alone: a key is not secret, so others could use up a limit of its own,
    /// and one that is unknown now may be registered a moment later.
    pub(in crate::control) async fn authenticate_device(
        &self,
        from: IpAddr,
        request: DeviceRequest,
    ) -> Result<DeviceCaller, RequestError> {
        let now = clock::now();
        let known = match request.verify(now) {
            // Not counted: the device signs again with this server's time.
            Err(Unproven::ClockSkew) => return Err(RequestError::ClockSkew { now }),
            Err(_) => Err(registry::Error::UnknownDevice),
            Ok(asked) => {
                let device = asked.clone();
                let job = move |registry: &mut Registry| registry.check_device(&device, now);
                self.reader.ask(job).await.map(|()| asked)
            }
        };
        match known {
            Ok(asked) => Ok(DeviceCaller { from, asked }),
            Err(registry::Error::UnknownDevice) => {
                self.throttles.failed_device(from)?;
                Err(RequestError::UnknownDevice)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A session token for a device: the same as its daemon's owner gets.
    pub(in crate::control) async fn open_device_session(
        &self,
        DeviceCaller { from, asked }: DeviceCaller,
    ) -> Result<SessionOpened, RequestError> {
        self.throttles.may_issue_to_device(from, asked.device())?;
        let (now, daemon) = (clock::now(), asked.daemon().clone());
        let until = now + SESSION_TTL;
        let job = move |registry: &mut Registry| registry.open_device_session(&asked, now, until);
        let terms = self.writer.ask(job).await?;
        Ok(self.session(daemon, terms, now))
    }
}

//! Devices that a session knows by their `surface_id`.

use std::sync::Arc;

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{DeviceRow, TokenHash};
use jiff::Timestamp;

use super::pool::Connection;
use super::rows::{millis, told, uuid};
use super::{Postgres, load};
use crate::{Devices, Result};

#[async_trait::async_trait]
impl Devices for Postgres {
    async fn devices(&self, id: SessionId) -> Result<Vec<DeviceRow>> {
        self.pool.read(move |c| async move { load::devices(&c, id).await }).await
    }

    async fn device_of(
        &self,
        id: SessionId,
        token: TokenHash,
        at: Timestamp,
    ) -> Result<Option<String>> {
        let sql = "SELECT surface_id FROM surfaces
                   WHERE session = $1 AND token_hash = $2 AND token_expires_at > $3";
        let find = move |c: Arc<Connection>| async move {
            let key = uuid(id.as_bytes());
            let row = c.query_opt(sql, &[&key, &&token.0[..], &millis(at)]).await?;
            row.map(|row| told(&row, "surface_id")).transpose()
        };
        self.pool.read(find).await
    }
}

//! The gateway as a client of an MCP server: it offers no capabilities, so what a server asks for is
//! refused, and noted for the call that needs it.

use std::sync::Arc;

#[expect(
    deprecated,
    reason = "servers of older protocol revisions ask for sampling and roots"
)]
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestMethod, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationCreateRequestMethod,
    Implementation, ListRootsRequestMethod, ListRootsResult,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::Notify;

use super::needs::{Need, Needs};

#[derive(Debug, Clone, Default)]
pub(super) struct Handler {
    /// Wakes the server's task to list the tools again: they have changed, or a call has failed.
    pub(super) look: Arc<Notify>,
    pub(super) needs: Arc<Needs>,
}

#[expect(deprecated, reason = "servers of older protocol revisions ask for sampling and roots")]
impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("bowline", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn create_message(
        &self,
        _asked: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.needs.asked(Need::Sampling);
        Err(ErrorData::method_not_found::<CreateMessageRequestMethod>())
    }

    async fn create_elicitation(
        &self,
        _asked: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.needs.asked(Need::Elicitation);
        Err(ErrorData::method_not_found::<ElicitationCreateRequestMethod>())
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        self.needs.asked(Need::Roots);
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.look.notify_one();
    }
}

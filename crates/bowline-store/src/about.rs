//! The parts of an approval that nothing is looked up by: one JSON column in every backend.

use bowline_sbp::approval::{Approval, DefinitionChange};
use bowline_sbp::id::UserId;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AboutApproval {
    device: Option<String>,
    changed: Option<DefinitionChange>,
    second_person: bool,
    asked_by: Option<UserId>,
    asked_with: Option<String>,
}

impl AboutApproval {
    pub(crate) fn of(approval: &Approval) -> Self {
        Self {
            device: approval.device.clone(),
            changed: approval.changed.clone(),
            second_person: approval.second_person,
            asked_by: approval.asked_by,
            asked_with: approval.asked_with.clone(),
        }
    }

    /// An approval with these parts.
    pub(crate) fn complete(self, approval: Approval) -> Approval {
        Approval {
            device: self.device,
            changed: self.changed,
            second_person: self.second_person,
            asked_by: self.asked_by,
            asked_with: self.asked_with,
            ..approval
        }
    }
}

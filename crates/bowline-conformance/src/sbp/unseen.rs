//! Requirements that nobody can check from outside, and why. They are named in each report, so that
//! nobody takes its silence for a check.

use crate::report::Unseen;

pub(super) const UNSEEN: &[Unseen] = &[
    Unseen { id: "SBP-L5-05", why: "needs several processes of the server behind two addresses" },
    Unseen {
        id: "SBP-L5-06",
        why: "which MCP servers the server under test uses is its own configuration",
    },
    Unseen {
        id: "SBP-L6-04",
        why: "where a server looks for peers is its own configuration; DNS is not the suite's",
    },
    Unseen { id: "SBP-L6-08", why: "which processes run where is its operator's choice" },
];

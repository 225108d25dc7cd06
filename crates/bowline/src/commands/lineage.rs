//! `bowline lineage`: the tree of imports, forks and handoffs that a session belongs to, across gateways.

mod svg;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use bowline_sbp::api::{Lineage, LineageEdge};

use crate::api::Api;
use crate::cli::roaming::LineageArgs;
use crate::failure::Failure;
use crate::terminal::{printable, say, show};

pub(crate) async fn run(args: LineageArgs) -> Result<ExitCode, Failure> {
    let api = Api::new(&args.gateway).await?;
    let id = api.session(&args.session).await?;
    let seen = api.get(&format!("/v1/sbp/sessions/{id}/lineage")).await?;
    if args.json {
        say!("{seen}");
        return Ok(ExitCode::SUCCESS);
    }
    let lineage: Lineage = serde_json::from_value(seen)
        .map_err(|_| Failure::new("the gateway's answer cannot be read"))?;
    let drawn = match (args.dot, args.svg) {
        (true, _) => dot(&lineage),
        (_, true) => svg::drawn(&lineage),
        _ => tree(&lineage),
    };
    show!("{drawn}");
    Ok(ExitCode::SUCCESS)
}

/// The sessions that are derived from each one, and those that are derived from none.
fn children<'a>(
    lineage: &'a Lineage,
    me: &'a str,
) -> (BTreeMap<&'a str, Vec<&'a LineageEdge>>, Vec<&'a str>) {
    let mut children: BTreeMap<&str, Vec<&LineageEdge>> = BTreeMap::new();
    for edge in &lineage.tree {
        children.entry(&edge.from_session_id).or_default().push(edge);
    }
    let born: BTreeSet<&str> = lineage.tree.iter().map(|e| e.to_session_id.as_str()).collect();
    let mut roots: Vec<&str> =
        children.keys().copied().filter(|session| !born.contains(session)).collect();
    if roots.is_empty() {
        roots.push(me);
    }
    (children, roots)
}

/// The gateways of sessions that are not here.
fn gateways(lineage: &Lineage) -> BTreeMap<&str, &str> {
    let mut known = BTreeMap::new();
    for edge in &lineage.tree {
        if let Some(gateway) = &edge.from_gateway {
            known.insert(edge.from_session_id.as_str(), gateway.gateway_id.as_str());
        }
        if let Some(gateway) = &edge.to_gateway {
            known.insert(edge.to_session_id.as_str(), gateway.gateway_id.as_str());
        }
    }
    known
}

/// A session with its gateway, if that is another one.
fn labelled(session: &str, me: &str, gateways: &BTreeMap<&str, &str>) -> String {
    let at = gateways.get(session).map(|id| format!(" at {}", printable(id)));
    let mark = if session == me { "  ◀ this one" } else { "" };
    format!("{}{}{mark}", printable(session), at.unwrap_or_default())
}

/// The tree from the oldest known session down, with the requested session marked.
fn tree(lineage: &Lineage) -> String {
    let me = lineage.session_id.to_string();
    let (children, roots) = children(lineage, &me);
    let gateways = gateways(lineage);
    let mut drawing =
        Drawing { me: &me, gateways, children, drawn: BTreeSet::new(), out: String::new() };
    for root in roots {
        let line = drawing.named(root);
        drawing.out.push_str(&format!("{line}\n"));
        drawing.drawn.insert(root);
        drawing.below(root);
    }
    let mut out = drawing.out;
    out.push_str(&costs(lineage));
    for export in &lineage.exports {
        let used = match (&export.import_session_id, export.imported_at) {
            (Some(session), _) => format!("imported as {session}"),
            (None, _) => format!("valid until {}", export.expires_at),
        };
        let label = export.label.as_deref().map(|l| format!(" \"{}\"", printable(l)));
        out.push_str(&format!(
            "export {}{}: {used}\n",
            export.export_id,
            label.unwrap_or_default()
        ));
    }
    if lineage.truncated {
        out.push_str("… there are more related sessions than are shown\n");
    }
    out
}

/// The cost of each session; those without cost are left out.
fn costs(lineage: &Lineage) -> String {
    let mut out = String::new();
    for cost in &lineage.sessions {
        let tokens = (cost.prompt_tokens.unwrap_or(0), cost.completion_tokens.unwrap_or(0));
        let Some(usd) = cost.cost_usd.filter(|usd| *usd > 0.0 || tokens != (0, 0)) else {
            continue;
        };
        let branch = cost.branch.as_ref().filter(|branch| branch.sessions > 1);
        let branch = branch.map(|branch| format!(", with its branch ${:.4}", branch.cost_usd));
        out.push_str(&format!(
            "spent {}: ${usd:.4}, {} tokens in, {} out{}\n",
            printable(&cost.session_id),
            tokens.0,
            tokens.1,
            branch.unwrap_or_default()
        ));
    }
    out
}

struct Drawing<'a> {
    me: &'a str,
    gateways: BTreeMap<&'a str, &'a str>,
    children: BTreeMap<&'a str, Vec<&'a LineageEdge>>,
    drawn: BTreeSet<&'a str>,
    out: String,
}

impl<'a> Drawing<'a> {
    fn named(&self, session: &str) -> String {
        labelled(session, self.me, &self.gateways)
    }

    /// Draws everything below a session. Not recursive, since a deep tree could overflow the stack.
    fn below(&mut self, root: &'a str) {
        let edges = |drawing: &Self, of: &str| {
            drawing.children.get(of).cloned().unwrap_or_default().into_iter()
        };
        let mut stack = vec![(edges(self, root), String::new())];
        while let Some((waiting, indent)) = stack.last_mut() {
            let Some(edge) = waiting.next() else {
                stack.pop();
                continue;
            };
            let last = waiting.len() == 0;
            let (arm, below) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let (line, indent) = (format!("{indent}{arm}"), format!("{indent}{below}"));
            let session = edge.to_session_id.as_str();
            let again = if self.drawn.insert(session) { "" } else { "  (shown above)" };
            let named = self.named(session);
            self.out.push_str(&format!("{line}{} {named}{again}\n", how(edge)));
            if again.is_empty() {
                stack.push((edges(self, session), indent));
            }
        }
    }
}

/// The label of an edge: `forked as`, `imported as`, `handed to AGENT as`.
fn how(edge: &LineageEdge) -> String {
    let text = |name: &str| edge.detail.get(name).and_then(|value| value.as_str()).map(printable);
    let label = text("label").map(|label| format!(" \"{label}\"")).unwrap_or_default();
    match edge.kind.as_str() {
        "handoff" => format!("handed to {} as", text("to_agent_id").unwrap_or_default()),
        "fork" => format!("forked{label} as"),
        _ if edge.from_gateway.is_some() || edge.to_gateway.is_some() => {
            let by = edge.said_by.as_deref().map(|id| format!(" (says {})", printable(id)));
            format!("moved{label} as{}", by.unwrap_or_default())
        }
        _ => format!("imported{label} as"),
    }
}

fn dot(lineage: &Lineage) -> String {
    let quoted = |text: &str| format!("\"{}\"", printable(text).replace(['"', '\\'], "_"));
    let mut out = String::from("digraph lineage {\n  node [shape=box, fontname=monospace];\n");
    out.push_str(&format!("  {} [style=bold];\n", quoted(&lineage.session_id.to_string())));
    for (session, gateway) in gateways(lineage) {
        let label = format!("{session} at {gateway}");
        out.push_str(&format!("  {} [label={}];\n", quoted(session), quoted(&label)));
    }
    for edge in &lineage.tree {
        out.push_str(&format!(
            "  {} -> {} [label={}];\n",
            quoted(&edge.from_session_id),
            quoted(&edge.to_session_id),
            quoted(&edge.kind)
        ));
    }
    if lineage.truncated {
        out.push_str("  more [label=\"…\", shape=none];\n");
    }
    out.push_str("}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_sbp::api::{BranchCost, GatewayRef, SessionCost};
    use bowline_sbp::id::SessionId;
    use jiff::Timestamp;
    use uuid::Uuid;

    fn id(n: u128) -> String {
        Uuid::from_u128(n).to_string()
    }

    fn edge(kind: &str, from: &str, to: &str) -> LineageEdge {
        let detail = serde_json::json!({ "label": "plan\u{1b}B", "to_agent_id": "booking" });
        LineageEdge {
            kind: kind.into(),
            from_session_id: from.into(),
            to_session_id: to.into(),
            export_id: None,
            created_at: Timestamp::UNIX_EPOCH,
            detail: detail.as_object().unwrap().clone(),
            from_gateway: None,
            to_gateway: None,
            said_by: None,
        }
    }

    fn lineage(tree: Vec<LineageEdge>) -> Lineage {
        Lineage {
            session_id: SessionId(Uuid::from_u128(3)),
            exports: vec![],
            outgoing_handoffs: vec![],
            incoming_handoffs: vec![],
            forks: vec![],
            origin: None,
            tree,
            truncated: false,
            sessions: vec![],
        }
    }

    #[test]
    fn sbp_l3_12_a_family_is_drawn_as_a_tree() {
        let drawn = tree(&lineage(vec![
            edge("import", "ses_theirs", &id(1)),
            edge("fork", &id(1), &id(2)),
            edge("handoff", &id(2), &id(3)),
            edge("fork", &id(1), &id(4)),
        ]));
        let (one, two, three, four) = (id(1), id(2), id(3), id(4));
        let expected = format!(
            "ses_theirs\n\
             └── imported \"planB\" as {one}\n    \
                 ├── forked \"planB\" as {two}\n    \
                 │   └── handed to booking as {three}  ◀ this one\n    \
                 └── forked \"planB\" as {four}\n"
        );
        assert_eq!(drawn, expected);
    }

    #[test]
    fn sbp_l3_12_what_each_session_spent_is_said_below() {
        let cost = |n, cost_usd, tokens: u64, branch| SessionCost {
            session_id: id(n),
            cost_usd,
            prompt_tokens: Some(tokens),
            completion_tokens: Some(tokens / 10),
            branch,
        };
        let branch = BranchCost {
            sessions: 2,
            cost_usd: 0.75,
            prompt_tokens: 3000,
            completion_tokens: 300,
            complete: true,
        };
        let mut family = lineage(vec![edge("fork", &id(1), &id(3))]);
        family.sessions = vec![
            cost(1, Some(0.5), 2000, Some(branch)),
            cost(3, Some(0.25), 1000, None),
            cost(4, Some(0.0), 0, None),
            cost(5, None, 7, None),
        ];
        let (one, three) = (id(1), id(3));
        let expected = format!(
            "spent {one}: $0.5000, 2000 tokens in, 200 out, with its branch $0.7500\n\
             spent {three}: $0.2500, 1000 tokens in, 100 out\n"
        );
        assert!(tree(&family).ends_with(&expected), "{}", tree(&family));
    }

    /// The session came from `away`, which got it from `far`, as `away` says.
    fn across() -> Lineage {
        let gateway = |id: &str| {
            let url = format!("https://{id}.example");
            Some(GatewayRef { gateway_id: id.into(), url })
        };
        let first = LineageEdge {
            from_gateway: gateway("far"),
            to_gateway: gateway("away"),
            said_by: Some("away".into()),
            detail: Default::default(),
            ..edge("import", &id(1), &id(2))
        };
        let second = LineageEdge {
            from_gateway: gateway("away"),
            detail: Default::default(),
            ..edge("import", &id(2), &id(3))
        };
        lineage(vec![first, second])
    }

    #[test]
    fn sbp_l3_12_sessions_of_other_gateways_are_named_with_them() {
        let expected = format!(
            "{} at far\n└── moved as (says away) {} at away\n    └── moved as {}  ◀ this one\n",
            id(1),
            id(2),
            id(3)
        );
        assert_eq!(tree(&across()), expected);
        let graph = dot(&across());
        assert!(graph.contains(&format!("\"{}\" [label=\"{0} at far\"];", id(1))), "{graph}");
    }

    #[test]
    fn sbp_l3_12_a_picture_has_every_session_and_nothing_that_a_browser_would_run() {
        let mut family = across();
        family.tree[0].from_gateway.as_mut().unwrap().gateway_id = "<script>&\"".into();
        let drawn = svg::drawn(&family);
        assert!(drawn.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{drawn}");
        assert_eq!(drawn.matches("<rect").count(), 3, "{drawn}");
        assert_eq!(drawn.matches("<path").count(), 2, "{drawn}");
        assert!(
            drawn.contains("&lt;script&gt;&amp;&quot;") && !drawn.contains("<script"),
            "{drawn}"
        );
        assert!(svg::drawn(&lineage(vec![])).contains(&id(3)), "a lonely one, too");
    }

    #[test]
    fn sbp_l3_12_a_loop_ends_and_a_lonely_session_is_shown() {
        let drawn =
            tree(&lineage(vec![edge("import", &id(3), &id(4)), edge("import", &id(4), &id(3))]));
        assert_eq!(drawn.lines().count(), 3, "{drawn}");
        assert!(drawn.ends_with("(shown above)\n"), "{drawn}");
        assert_eq!(tree(&lineage(vec![])), format!("{}  ◀ this one\n", id(3)));
    }

    #[test]
    fn sbp_l3_12_a_graph_names_every_edge() {
        let mut all = lineage(vec![edge("fork", "a\"b", &id(3))]);
        all.truncated = true;
        let drawn = dot(&all);
        assert!(drawn.contains(&format!("\"a_b\" -> \"{}\" [label=\"fork\"]", id(3))), "{drawn}");
        assert!(drawn.contains("more ["), "{drawn}");
    }
}

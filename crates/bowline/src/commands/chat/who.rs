//! Who is attached, in words, and the name of this terminal.

use bowline_sbp::frame::AttachedSurface;

use crate::terminal::one_line;

/// `annas-phone (mobile)`.
pub(super) fn name(surface: &AttachedSurface) -> String {
    let device = one_line(&surface.device_type);
    match &surface.surface_id {
        Some(id) => format!("{} ({device})", one_line(id)),
        None => format!("a {device} without a name"),
    }
}

/// The attached surfaces, one a line.
pub(super) fn list(surfaces: &[AttachedSurface]) -> String {
    let line = |surface: &AttachedSurface| match surface.you {
        true => format!("{}, this terminal", name(surface)),
        false => name(surface),
    };
    match surfaces {
        [] => "the gateway has not said yet".into(),
        surfaces => surfaces.iter().map(line).collect::<Vec<_>>().join("\n"),
    }
}

/// The `surface_id` of this terminal: the same for one terminal window, so that a chat that was
/// killed and started again is the same device; none without a terminal.
pub(super) fn this_terminal() -> Option<String> {
    let tty = rustix::termios::ttyname(std::io::stdin(), Vec::new()).ok()?;
    let tty = tty.to_string_lossy().trim_start_matches("/dev/").replace('/', "-");
    let system = rustix::system::uname();
    Some(format!("{}-{tty}", system.nodename().to_string_lossy()))
}

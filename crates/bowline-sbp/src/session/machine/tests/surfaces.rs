use super::*;
use crate::id::Seq;
use crate::session::machine::surfaces::GUESTS;
use crate::session::{Attach, Attached, Closed, DeviceChange, Refusal, ReplicaId, TokenHash};
use crate::surface::SurfaceContext;

fn attach(name: Option<&str>) -> Attach {
    Attach {
        socket: Uuid::new_v4(),
        edge: ReplicaId(Uuid::nil()),
        surface: SurfaceContext {
            surface_id: name.map(str::to_owned),
            ..SurfaceContext::default()
        },
        tools: Vec::new(),
        device: None,
        join: false,
        take_over: false,
        guest: false,
        approver: None,
    }
}

fn joined(name: Option<&str>) -> Attach {
    Attach { join: true, ..attach(name) }
}

impl Bench {
    fn attach(&mut self, attach: Attach) -> Attached {
        match self.command(Command::Attach(attach)).reply_of() {
            Reply::Attached(attached) => Attached::clone(attached),
            other => panic!("{other:?}"),
        }
    }

    fn epochs(&self) -> Vec<u64> {
        self.machine.live().surfaces.iter().map(|surface| surface.epoch).collect()
    }

    fn confirm(&mut self, epoch: u64, seq: Seq) -> Step {
        let step = self.command(Command::Confirmed { epoch, seq });
        assert_eq!(*step.reply_of(), Reply::Done);
        step
    }

    /// A log of two entries for each turn.
    fn talk(&mut self, turns: u128) {
        for number in 1..=turns {
            self.command(Command::Submit(Submit { resume: true, ..waited(number) }));
            self.answer(number);
        }
    }
}

#[test]
fn sbp_l2_20_who_stays_and_who_goes_when_a_surface_attaches() {
    let take_over = |name| Attach { take_over: true, ..attach(name) };
    // Epoch 1 is plain and has no name, 2 is joined and has none, 3 is joined as "phone".
    for (attaches, stay) in [
        (joined(None), vec![1, 2, 3, 4]),
        (joined(Some("phone")), vec![1, 2, 4]),
        (attach(None), vec![2, 3, 4]),
        (attach(Some("desk")), vec![2, 3, 4]),
        (attach(Some("phone")), vec![2, 4]),
        (take_over(None), vec![4]),
        (Attach { take_over: true, ..joined(None) }, vec![4]),
    ] {
        let mut bench = Bench::new();
        bench.attach(attach(None));
        bench.attach(joined(None));
        bench.attach(joined(Some("phone")));
        let what = format!("{attaches:?}");
        bench.attach(attaches);
        assert_eq!(bench.epochs(), stay, "{what}");
        let gone = (1..=3).filter(|epoch| !stay.contains(epoch));
        let gone: Vec<_> = gone.map(|epoch| (epoch, Closed::Replaced)).collect();
        assert_eq!(bench.machine.live().closed, gone, "{what}");
    }
}

#[test]
fn sbp_l2_20_at_most_sixty_four_surfaces_and_replacing_one_makes_room() {
    let mut bench = Bench::new();
    for number in 1..=64 {
        bench.attach(joined(Some(&format!("device {number}"))));
    }
    let refused = bench.command(Command::Attach(joined(None)));
    assert_eq!(*refused.reply_of(), Reply::Refused(Refusal::TooManySurfaces(64)));
    assert_eq!(refused.names(), [""; 0]);
    bench.attach(joined(Some("device 7")));
    assert_eq!(bench.epochs().len(), 64);
}

#[test]
fn sbp_l2_20_a_new_device_begins_where_the_session_is_and_keeps_its_own_position() {
    let mut bench = Bench::new();
    bench.talk(3);
    let phone = bench.attach(joined(Some("phone")));
    assert_eq!((phone.cursor, phone.head), (0, 6));
    assert_eq!(bench.confirm(phone.epoch, 4).names(), ["device", "delivered"]);
    let desk = bench.attach(joined(Some("desk")));
    assert_eq!(desk.cursor, 4, "a new one begins at the session's position");
    bench.confirm(desk.epoch, 6);
    bench.leaves(phone.epoch);
    assert_eq!(bench.attach(joined(Some("phone"))).cursor, 4, "a known one at its own");
    assert_eq!(bench.attach(joined(None)).cursor, 6, "one without a name at the session's");
}

#[test]
fn g5_positions_never_move_back_nor_past_the_log() {
    let mut bench = Bench::new();
    bench.talk(2);
    let phone = bench.attach(joined(Some("phone"))).epoch;
    let desk = bench.attach(joined(Some("desk"))).epoch;
    bench.confirm(phone, 3);
    for (epoch, seq, writes) in [
        (phone, 2, vec![]),
        (phone, 3, vec![]),
        (phone, 5, vec![]),
        (desk, 2, vec!["device"]),
        (phone, 4, vec!["device", "delivered"]),
        (9, 4, vec![]),
    ] {
        assert_eq!(bench.confirm(epoch, seq).names(), writes, "{epoch} has {seq}");
    }
    assert_eq!(bench.machine.head().delivered_seq, 4);
}

#[test]
fn g6_what_a_closed_attachment_still_does_is_passed_over() {
    let mut bench = Bench::new();
    bench.talk(1);
    let old = bench.attach(attach(Some("phone"))).epoch;
    let new = bench.attach(attach(Some("phone"))).epoch;
    assert_eq!(bench.confirm(old, 2).names(), [""; 0]);
    assert_eq!(bench.leaves(old), Step::default());
    assert_eq!((bench.epochs(), new), (vec![2], 2));
}

#[test]
fn sbp_l2_15_the_session_is_suspended_when_the_last_surface_goes() {
    let mut bench = Bench::new();
    bench.talk(1);
    bench.attach(joined(None));
    bench.attach(joined(None));
    bench.leaves(1);
    assert_eq!(bench.machine.head().status, Status::Running);
    bench.leaves(2);
    assert_eq!(bench.machine.head().status, Status::Suspended);
    bench.attach(attach(None));
    assert_eq!(bench.machine.head().status, Status::Running);
}

fn token(name: &str, number: u8) -> Command {
    Command::Device(DeviceChange::Token {
        surface_id: name.into(),
        hash: TokenHash([number; 32]),
        expires_at: Timestamp::UNIX_EPOCH + Duration::from_secs(60),
    })
}

#[test]
fn sbp_l4_05_a_device_with_a_token_is_that_device_until_the_token_ends() {
    let mut bench = Bench::new();
    bench.command(token("phone", 1));
    let with = |number| Attach { device: Some(TokenHash([number; 32])), ..joined(Some("liar")) };
    let attached = bench.attach(with(1));
    assert_eq!(attached.context.surface_id.as_deref(), Some("phone"));
    assert_eq!(attached.until, Some(Timestamp::UNIX_EPOCH + Duration::from_secs(60)));
    // A new token replaces the old one and closes the device's attachment.
    bench.command(token("phone", 2));
    assert_eq!(bench.machine.live().closed, [(1, Closed::Revoked)]);
    let revoked = Reply::Refused(Refusal::Revoked);
    assert_eq!(*bench.command(Command::Attach(with(1))).reply_of(), revoked);
    bench.attach(with(2));
    bench.wait(60);
    assert_eq!(*bench.command(Command::Attach(with(2))).reply_of(), revoked);
}

#[test]
fn sbp_l4_05_a_device_that_is_forgotten_is_closed_if_it_had_a_token() {
    let forget = |name: &str| Command::Device(DeviceChange::Forget { surface_id: name.into() });
    let mut bench = Bench::new();
    bench.command(token("phone", 1));
    bench.attach(joined(Some("phone")));
    bench.attach(joined(Some("desk")));
    assert_eq!(bench.command(forget("desk")).names(), ["forget_device"]);
    assert_eq!(bench.command(forget("phone")).names(), ["forget_device", "detach"]);
    assert_eq!(bench.epochs(), [2]);
    assert_eq!(*bench.command(forget("phone")).reply_of(), Reply::Refused(Refusal::NoDevice));
}

#[test]
fn a_session_remembers_sixty_four_devices_and_forgets_who_was_longest_away() {
    let mut bench = Bench::new();
    let oldest = Write::ForgetDevice { surface_id: "device 0".into() };
    for number in 0..65 {
        bench.wait(1);
        let step = bench.command(Command::Attach(attach(Some(&format!("device {number}")))));
        assert_eq!(step.writes.contains(&oldest), number == 64, "{number}");
    }
}

#[test]
fn g6_the_same_attach_again_gives_the_same_attachment() {
    let mut bench = Bench::new();
    bench.talk(1);
    let asked = joined(Some("phone"));
    let first = bench.attach(asked.clone());
    bench.confirm(first.epoch, 1);
    let step = bench.command(Command::Attach(asked));
    assert_eq!(step.names(), [""; 0]);
    assert_eq!(*step.reply_of(), Reply::Attached(Box::new(Attached { cursor: 1, ..first })));
}

#[test]
fn g20_a_guest_changes_neither_the_status_nor_the_devices_and_takes_nobodys_place() {
    let guest = |name| Attach { guest: true, ..joined(name) };
    let mut bench = Bench::new();
    bench.talk(1);
    let status = bench.machine.head().status;
    let visitor = bench.attach(guest(Some("bob/phone"))).epoch;
    assert_eq!(bench.machine.head().status, status);
    bench.leaves(visitor);
    assert_eq!(bench.machine.head().status, status, "nobody of the user's was there");
    let own = bench.attach(joined(Some("phone"))).epoch;
    bench.attach(guest(None));
    bench.leaves(own);
    assert_eq!(bench.machine.head().status, Status::Suspended, "a guest does not count");
    let devices: Vec<_> = bench.machine.devices.iter().map(|d| d.surface_id.as_str()).collect();
    assert_eq!(devices, ["phone"]);
    // Guests fill their own places only.
    let most = bench.machine.limits.surfaces;
    let mut guests = 1;
    while let Reply::Attached(_) = bench.command(Command::Attach(guest(None))).reply_of() {
        guests += 1;
    }
    assert_eq!(guests, most / GUESTS);
    for _ in 0..most {
        bench.attach(joined(None));
    }
}

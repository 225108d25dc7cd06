//! Random histories, with a relay that is honest and with one that is not.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngSeed};

use crate::tamper::Tamper;
use crate::world::{Op, World};

/// The same histories in every run; `BOWLINE_SOAK=1` looks at many new ones.
fn config() -> Config {
    let soak = std::env::var_os("BOWLINE_SOAK").is_some();
    Config {
        cases: if soak { 20_000 } else { 300 },
        rng_seed: if soak { RngSeed::Random } else { RngSeed::Fixed(0x5B12) },
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..Config::default()
    }
}

fn honest_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any::<u8>().prop_map(Op::Up),
        8 => any::<u8>().prop_map(Op::Down),
        20 => any::<u8>().prop_map(Op::Flow),
        6 => any::<u8>().prop_map(Op::Connect),
        4 => Just(Op::DaemonConnect),
        1 => Just(Op::DaemonDoubles),
        12 => any::<u8>().prop_map(Op::ClientSays),
        12 => any::<u8>().prop_map(Op::DaemonSays),
        1 => any::<u8>().prop_map(Op::DaemonCloses),
        1 => any::<(u8, u8)>().prop_map(|(at, rest)| Op::CutAtEnd(at, rest)),
        1 => any::<(u8, u8)>().prop_map(|(at, rest)| Op::CutAtRelay(at, rest)),
        2 => any::<u8>().prop_map(Op::Wait),
    ]
}

fn tampering() -> impl Strategy<Value = Op> {
    let how = prop::sample::select(vec![
        Tamper::Drop,
        Tamper::Repeat,
        Tamper::Swap,
        Tamper::Truncate,
        Tamper::Flip,
        Tamper::Replay,
        Tamper::Replay,
        Tamper::Control,
        Tamper::Impersonate,
    ]);
    (how, any::<(u8, u8, u8)>())
        .prop_map(|(how, (socket, at, detail))| Op::Tamper(how, socket, at, detail))
}

fn hostile_op() -> impl Strategy<Value = Op> {
    prop_oneof![6 => honest_op(), 1 => tampering()]
}

fn history(op: impl Strategy<Value = Op>) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op, 0..500)
}

proptest! {
    #![proptest_config(config())]

    /// SBRP-RELAY-02, -09 to -13, -18, -19; SBRP-CLIENT-04, -05; SBRP-DAEMON-05: whatever the
    /// network did, afterwards everyone talks, in order, and no loss went untold.
    #[test]
    fn sbrp_relay_02_09_18_19_nothing_is_lost_silently_and_everyone_comes_back(
        seed: u64,
        resumable: bool,
        ops in history(honest_op()),
    ) {
        let mut world = World::new(seed, resumable, true);
        ops.into_iter().for_each(|op| world.step(op));
        world.check_everyone_talks();
    }

    /// SBRP-CRYPTO-03 to -09, SBRP-CLIENT-03: the ledger fails on the first word that was not
    /// said, was heard twice, or was sealed with a used nonce.
    #[test]
    fn sbrp_crypto_07_client_03_a_lying_relay_gets_nothing_forged_accepted(
        seed: u64,
        ops in history(hostile_op()),
    ) {
        let mut world = World::new(seed, true, false);
        // Something to attack.
        [Op::DaemonConnect, Op::Flow(0), Op::Connect(0), Op::Connect(1), Op::Flow(3)]
            .into_iter()
            .chain(ops)
            .for_each(|op| world.step(op));
    }
}

/// The properties above would also hold in a world where nobody gets to say anything.
#[test]
fn histories_are_lively() {
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let mut heard = [0, 0];
    let mut resumed = 0;
    for seed in 0..50 {
        for honest in [true, false] {
            let ops = if honest {
                history(honest_op()).new_tree(&mut runner).unwrap().current()
            } else {
                history(hostile_op()).new_tree(&mut runner).unwrap().current()
            };
            let mut world = World::new(seed, true, honest);
            ops.into_iter().for_each(|op| world.step(op));
            heard[usize::from(honest)] += world.total_heard();
            resumed += world.total_resumed();
        }
    }
    assert!(heard.iter().all(|heard| *heard > 200), "only {heard:?} messages were heard");
    assert!(resumed > 20, "only {resumed} sessions resumed");
}

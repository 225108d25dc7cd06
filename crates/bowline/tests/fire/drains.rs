//! A surface that goes away in the middle of a drain.

use bowline_checker::Route;

use crate::caller::Way;
use crate::surface::{Surface, Taste};
use crate::world::World;

/// So many turns wait.
const TURNS: u64 = 6;

#[derive(Debug, Clone, Copy)]
enum Leaving {
    Vanishes,
    Closes,
    Detaches,
}

impl Leaving {
    async fn leave(self, surface: Surface) {
        match self {
            Self::Vanishes => drop(surface),
            Self::Closes => surface.close().await,
            Self::Detaches => surface.detach().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_drain_that_ends_after_any_turn_is_gone_on_with() {
    let world = World::start("0ms");
    let caller = world.caller();
    let mut sessions = Vec::new();
    for leaving in [Leaving::Vanishes, Leaving::Closes, Leaving::Detaches] {
        for acknowledged in [false, true] {
            for k in 0..=TURNS {
                let session = world.session().await;
                for _ in 0..TURNS {
                    caller.ask(&session.id, "waits", Way::Whole).await;
                }
                let mut first = world.attach(&session, Taste::Whole).await.unwrap();
                assert_eq!(first.queued, TURNS);
                for _ in 0..k {
                    assert_eq!(first.turn().await.unwrap().1, Route::Tether);
                }
                // Nothing more is read: the ping behind the turns stays unanswered.
                let mut left = TURNS;
                if acknowledged && k > 0 {
                    first.ack_only().await.unwrap();
                    left = TURNS - k;
                    world.until_pending(&session, left).await;
                    first.is_confirmed();
                }
                leaving.leave(first).await;

                let mut second = world.attach(&session, Taste::Whole).await.unwrap();
                let case = format!("{leaving:?} after {k}, acknowledged: {acknowledged}");
                assert_eq!(second.queued, left, "{case}");
                for _ in 0..left {
                    second.turn().await.unwrap();
                }
                assert_eq!(second.last, if left > 0 { 2 * TURNS } else { 0 }, "{case}");
                drop(second);
                sessions.push(session);
            }
        }
    }
    assert_eq!(world.verdict(&sessions).await, []);
}

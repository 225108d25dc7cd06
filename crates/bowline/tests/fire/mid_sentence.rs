//! A second device attaches while the agent is speaking.

use bowline_checker::{Outcome, Route};

use crate::caller::Way;
use crate::seed::{Dice, scale};
use crate::surface::{Seen, Taste};
use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sbp_l2_07_a_second_device_mid_sentence_gets_the_stored_turn_byte_for_byte() {
    let mut dice = Dice::for_test("sbp_l2_07_a_second");
    let world = World::start("1ms");
    let session = world.session().await;
    let mut in_the_middle = 0;
    for round in 0..scale(8, 60) {
        // Long enough that the second device comes before the end, whatever the machine does.
        let words: Vec<_> = (0..400).map(|_| dice.words(2)).collect();
        let text = format!("echo {round} {}", words.join(" "));
        let mut first = world.attach(&session, Taste::Chunks).await.unwrap();
        let way = if dice.chance(50) { Way::Streamed } else { Way::Whole };
        let (caller, id) = (world.caller(), session.id.clone());
        let asked = tokio::spawn({
            let text = text.clone();
            async move { caller.ask_exactly(&id, &text, way).await.1 }
        });
        let enough = dice.below(text.len() / 4);
        loop {
            match first.next().await.unwrap() {
                Seen::Chunk { length, .. } if length > enough => break,
                Seen::Turn { content, .. } => assert!(!text.ends_with(&content), "over already"),
                _ => {}
            }
        }
        let mut second = world.attach(&session, Taste::Chunks).await.unwrap();
        let (mut begun_at, mut so_far) = (None, 0);
        let (content, route) = loop {
            match second.next().await.unwrap() {
                Seen::Chunk { offset, length } => {
                    begun_at.get_or_insert(offset);
                    so_far = if so_far == 0 { length } else { so_far };
                }
                Seen::Turn { content, route } if text.ends_with(&content) => {
                    break (content, route);
                }
                _ => {}
            }
        };
        assert_eq!(format!("echo {content}"), text);
        if route == Route::Live {
            assert_eq!(begun_at, Some(0), "what was said before it came is there, too");
            in_the_middle += usize::from(enough > 0 && so_far > enough);
        }
        let Outcome::Answered { content: told, .. } = asked.await.unwrap() else {
            panic!("the caller was not answered")
        };
        assert_eq!(told, content);
        second.ack().await.unwrap();
        second.catch_up().await.unwrap();
    }
    println!("{in_the_middle} came in the middle");
    assert!(in_the_middle > 0, "nobody came in the middle of a sentence");
    assert_eq!(world.verdict(&[session]).await, []);
}

//! Contract of every backend: titles of sessions, and which sessions a text names.

use bowline_sbp::id::SessionId;
use bowline_sbp::session::{Command, Reply};
use bowline_store::NewImport;
use uuid::Uuid;

use crate::backends::backends;
use crate::fixture::*;
use crate::live::*;

backends! {
    the_first_words_of_the_user_name_a_session
    a_title_that_a_person_gave_stays_until_it_is_taken_back
    a_turn_that_is_forgotten_names_nothing
    imports_forks_and_handoffs_have_titles
    a_session_is_named_by_its_id_or_the_beginning_of_it
    a_session_is_named_by_its_title_or_the_beginning_of_it
    a_deleted_session_has_no_name
}

async fn title(store: &S, id: SessionId) -> Option<String> {
    store.session(id).await.unwrap().unwrap().titles.shown().map(str::to_owned)
}

async fn rename(live: &mut Live, title: &str) {
    let title = bowline_sbp::title::given(title).unwrap();
    assert_eq!(live.ask(Command::SetTitle(title)).await, Some(Reply::Done));
}

async fn named(store: &S, text: &str) -> Vec<SessionId> {
    store
        .named(bowline_sbp::access::OWNER, text.into())
        .await
        .unwrap()
        .iter()
        .map(|session| session.id)
        .collect()
}

/// A session called so.
async fn called(store: &S, title: &str) -> SessionId {
    let mut live = Live::new(store).await;
    rename(&mut live, title).await;
    live.id()
}

async fn the_first_words_of_the_user_name_a_session(store: S) {
    let mut live = Live::making(&store, new_session()).await;
    live.submit("Plan a trip\nto Kyoto").await;
    live.answer("Gladly").await;
    assert_eq!(title(&store, live.id()).await.as_deref(), Some("Plan a trip to Kyoto"));
    live.submit("in May").await;
    live.answer("Well").await;
    assert_eq!(title(&store, live.id()).await.as_deref(), Some("Plan a trip to Kyoto"));
}

async fn a_title_that_a_person_gave_stays_until_it_is_taken_back(store: S) {
    let mut live = Live::new(&store).await;
    rename(&mut live, "My trip").await;
    live.turn("one").await;
    assert_eq!(title(&store, live.id()).await.as_deref(), Some("My trip"));
    // Also when another process owns the session.
    let mut live = Live::of(&store, live.id()).await;
    live.turn("two").await;
    assert_eq!(title(&store, live.id()).await.as_deref(), Some("My trip"));
    rename(&mut live, "").await;
    assert_eq!(title(&store, live.id()).await.as_deref(), Some("ask one"));
}

async fn a_turn_that_is_forgotten_names_nothing(store: S) {
    let mut live = Live::new(&store).await;
    live.submit_as(watched("forgotten"), None).await;
    live.refuse().await;
    assert_eq!((live.stored().await.last_seq, title(&store, live.id()).await), (0, None));
    live.turn("kept").await;
    assert_eq!(title(&store, live.id()).await.as_deref(), Some("ask kept"));
}

async fn imports_forks_and_handoffs_have_titles(store: S) {
    let plain = store.import(import_of("elsewhere", 2)).await.unwrap().session;
    assert_eq!(plain.titles.shown(), Some("ask 1"));
    let labelled = NewImport { title: Some("Lisbon".into()), ..import_of("elsewhere", 2) };
    let labelled = store.import(labelled).await.unwrap().session;
    assert_eq!(labelled.titles.shown(), Some("Lisbon"));

    let fork = store.fork(fork_of(labelled.id, Some(1))).await.unwrap().session;
    assert_eq!(fork.titles, labelled.titles);
    let mut other = fork_of(plain.id, None);
    other.title = Some("Plan B".into());
    let other = store.fork(other).await.unwrap().session;
    assert_eq!(other.titles.shown(), Some("Plan B"));

    let successor = hand_off(&store, other.id, handoff()).await;
    assert_eq!(successor.titles.shown(), Some("Plan B"));
    rename(&mut Live::of(&store, successor.id).await, "").await;
    assert_eq!(title(&store, successor.id).await.as_deref(), Some("ask 1"));
}

async fn a_session_is_named_by_its_id_or_the_beginning_of_it(store: S) {
    let ids = [
        "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e6f",
        "0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e70",
        "0191f2c1-3b5e-7a10-8a55-1d2b3c4d5e6f",
    ];
    let [a, b, c] = ids.map(|id| SessionId(id.parse::<Uuid>().unwrap()));
    for id in [a, b, c] {
        let mut new = new_session();
        new.id = id;
        store.create_session(new, None).await.unwrap();
    }
    called(&store, "0191").await;
    for (text, found) in [
        (ids[0], vec![a]),
        (&ids[0].to_uppercase(), vec![a]),
        ("0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e7", vec![b]),
        ("0191f2c0", vec![b, a]),
        ("0191F2C1", vec![c]),
        ("0191f2c13b5e", vec![c]),
        ("0191f2c2", vec![]),
        ("019", vec![]),
        ("", vec![]),
        ("0191f2c0-3b5e-7a10-8a55-1d2b3c4d5e60", vec![]),
    ] {
        let got = named(&store, text).await;
        match text {
            // Not long enough to be the beginning of an id: that of a title.
            "019" => assert_eq!(got.len(), 1),
            _ => assert_eq!(got, found, "{text}"),
        }
    }
}

async fn a_session_is_named_by_its_title_or_the_beginning_of_it(store: S) {
    let trip = called(&store, "Étape à Kyoto").await;
    let longer = called(&store, "Étape à Kyoto, in May").await;
    let hexadecimal = called(&store, "decade").await;
    assert_eq!(named(&store, "étape  à KYOTO").await, [trip]);
    assert_eq!(named(&store, "étape").await, [longer, trip], "the newest first");
    assert_eq!(named(&store, "Kyoto").await, [], "not from the middle");
    assert_eq!(named(&store, "decade").await, [hexadecimal], "no id begins so");
    let same = called(&store, "étape à kyoto").await;
    assert_eq!(named(&store, "Étape à Kyoto").await, [same, trip]);
    for n in 0..60 {
        called(&store, &format!("many {n}")).await;
    }
    assert_eq!(named(&store, "many").await.len(), 50, "a list has an end");
}

async fn a_deleted_session_has_no_name(store: S) {
    let mut live = Live::new(&store).await;
    rename(&mut live, "Gone").await;
    assert_eq!(named(&store, "gone").await, [live.id()]);
    live.delete().await;
    assert_eq!(named(&store, "gone").await, []);
    assert_eq!(named(&store, &live.id().to_string()).await, []);
}

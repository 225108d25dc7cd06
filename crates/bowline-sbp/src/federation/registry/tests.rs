use super::*;
use serde_json::{Value, json};

fn identity(n: u8) -> GatewayIdentity {
    GatewayIdentity::from_seed(&[n; 32])
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn cid(n: usize) -> Cid {
    Cid::of_bytes(&n.to_be_bytes())
}

fn announcement() -> Announcement {
    Announcement {
        gateway_id: "a".parse().unwrap(),
        url: "https://a.example".parse().unwrap(),
        cids: vec![Announced { cid: cid(1), expires_at: 2_000 }],
        withdraw: vec![cid(2)],
        issued_at: 1_000,
    }
}

fn take(announcement: &Announcement, now: i64) -> Result<Announcement, RegistryError> {
    let text = announcement.sign(&identity(1));
    Announcement::peek(text.as_bytes())?.verify(&identity(1).public(), at(now))
}

#[test]
fn sbp_l6_03_an_announcement_is_signed_by_its_gateway() {
    assert_eq!(take(&announcement(), 1_000), Ok(announcement()));
    let text = announcement().sign(&identity(1));
    let peeked = Announcement::peek(text.as_bytes()).unwrap();
    assert_eq!((peeked.gateway_id().as_str(), peeked.url().as_str()), ("a", "https://a.example"));
    let other = peeked.clone().verify(&identity(2).public(), at(1_000));
    assert_eq!(other, Err(RegistryError::Signature));
    let moved = text.replace("https://a.example", "https://b.example");
    let moved = Announcement::peek(moved.as_bytes()).unwrap();
    assert_eq!(moved.verify(&identity(1).public(), at(1_000)), Err(RegistryError::Signature));
}

#[test]
fn sbp_l6_03_an_announcement_is_bounded_in_time_number_and_life() {
    for (now, expected) in [
        (700, Ok(())),
        (1_300, Ok(())),
        (699, Err(RegistryError::Time)),
        (1_301, Err(RegistryError::Time)),
    ] {
        assert_eq!(take(&announcement(), now).map(|_| ()), expected, "{now}");
    }
    let many = |cids: usize, withdrawn: usize| Announcement {
        cids: (0..cids).map(|n| Announced { cid: cid(n), expires_at: 2_000 }).collect(),
        withdraw: (0..withdrawn).map(cid).collect(),
        ..announcement()
    };
    assert!(take(&many(1_000, 0), 1_000).is_ok(), "a thousand fit into the largest body");
    assert!(take(&many(500, 500), 1_000).is_ok());
    assert_eq!(take(&many(1_000, 1), 1_000), Err(RegistryError::Limits));
    let life = |expires_at| Announcement {
        cids: vec![Announced { cid: cid(1), expires_at }],
        ..announcement()
    };
    assert!(take(&life(1_000 + 86_400), 1_000).is_ok());
    assert_eq!(take(&life(1_000 + 86_401), 1_000), Err(RegistryError::Limits));
    let extreme = Announcement { issued_at: i64::MIN, ..announcement() };
    assert_eq!(take(&extreme, 1_000), Err(RegistryError::Time));
}

fn answer() -> RegistryAnswer {
    let holder = |id: &str, expires_at| Holder {
        gateway_id: id.parse().unwrap(),
        url: "https://a.example".parse().unwrap(),
        expires_at,
    };
    RegistryAnswer {
        cid: cid(1),
        gateways: vec![holder("a", 2_000), holder("b", 1_500)],
        issued_at: 1_000,
        tracker_id: "t".parse().unwrap(),
    }
}

fn read(text: &str, now: i64) -> Result<RegistryAnswer, RegistryError> {
    let tracker = "t".parse().unwrap();
    RegistryAnswer::read(text.as_bytes(), &tracker, &identity(9).public(), cid(1), at(now))
}

#[test]
fn sbp_l6_03_an_answer_is_signed_by_its_tracker_and_is_for_one_question() {
    let text = answer().sign(&identity(9));
    assert_eq!(read(&text, 1_000), Ok(answer()));
    assert_eq!(read(&text, 1_301), Err(RegistryError::Time));
    assert_eq!(read(&answer().sign(&identity(8)), 1_000), Err(RegistryError::Signature));
    let added = text.replace("a.example", "z.example");
    assert_eq!(read(&added, 1_000), Err(RegistryError::Signature));
    let other = RegistryAnswer { cid: cid(2), ..answer() }.sign(&identity(9));
    assert_eq!(read(&other, 1_000), Err(RegistryError::Other));
    let other = RegistryAnswer { tracker_id: "u".parse().unwrap(), ..answer() };
    assert_eq!(read(&other.sign(&identity(9)), 1_000), Err(RegistryError::Other));
    for text in ["", "[]", "{}", "<html>"] {
        assert!(read(text, 1_000).is_err(), "{text}");
    }
}

#[test]
fn sbp_l6_03_gateways_whose_time_has_ended_and_those_past_sixteen_are_left_out() {
    let late = RegistryAnswer { issued_at: 1_500, ..answer() };
    let read_late = read(&late.sign(&identity(9)), 1_500).unwrap();
    assert_eq!(read_late.gateways, answer().gateways[..1]);
    let holder = answer().gateways[0].clone();
    let many = RegistryAnswer { gateways: vec![holder; 40], ..answer() };
    assert_eq!(read(&many.sign(&identity(9)), 1_000).unwrap().gateways.len(), MOST_HOLDERS);
}

#[test]
fn sbp_l6_03_records_on_the_wire_have_the_names_that_are_documented() {
    let text = announcement().sign(&identity(1));
    let mut object: Value = serde_json::from_str(&text).unwrap();
    assert!(object["signature"].take().is_string());
    assert_eq!(
        object,
        json!({
            "gateway_id": "a", "url": "https://a.example", "issued_at": 1000, "signature": null,
            "cids": [{"cid": cid(1), "expires_at": 2000}], "withdraw": [cid(2)],
        })
    );
    let mut object: Value = serde_json::from_str(&answer().sign(&identity(9))).unwrap();
    assert!(object["signature"].take().is_string());
    assert_eq!(
        object,
        json!({
            "cid": cid(1), "issued_at": 1000, "tracker_id": "t", "signature": null,
            "gateways": [
                {"gateway_id": "a", "url": "https://a.example", "expires_at": 2000},
                {"gateway_id": "b", "url": "https://a.example", "expires_at": 1500},
            ],
        })
    );
}

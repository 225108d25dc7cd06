use bowline_sbp::gateway_key::GatewayIdentity;

use super::*;

const ROOM: Capacity = Capacity { records: 100, records_per_gateway: 10, gateways: 3 };

fn cid(n: u8) -> Cid {
    Cid::of_bytes(&[n])
}

fn registry() -> (tempfile::TempDir, Registry) {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::open(folder.path()).unwrap();
    (folder, registry)
}

fn known() -> KnownGateway {
    let key = GatewayIdentity::from_seed(&[1; 32]).public();
    KnownGateway { key, checked_at: 1_000 }
}

fn announcement(name: &str, cids: &[(u8, i64)], withdraw: &[u8], issued_at: i64) -> Announcement {
    Announcement {
        gateway_id: name.parse().unwrap(),
        url: format!("https://{name}.example").parse().unwrap(),
        cids: cids.iter().map(|(n, ends)| Announced { cid: cid(*n), expires_at: *ends }).collect(),
        withdraw: withdraw.iter().map(|n| cid(*n)).collect(),
        issued_at,
    }
}

fn names(registry: &Registry, n: u8, now: i64) -> Vec<String> {
    let holders = registry.holders(cid(n), now).unwrap();
    holders.iter().map(|holder| holder.gateway_id.to_string()).collect()
}

#[test]
fn sbp_l6_03_a_record_lasts_until_its_end_and_is_refreshed_and_withdrawn() {
    let (_folder, mut registry) = registry();
    let mut store = |cids: &[(u8, i64)], withdraw: &[u8], issued_at| {
        let announcement = announcement("a", cids, withdraw, issued_at);
        let stored = registry.store(&announcement, known(), ROOM, issued_at).unwrap();
        let lasts = (0..5_000).take_while(|now| !names(&registry, 1, *now).is_empty()).count();
        (stored.announced, stored.withdrawn, lasts)
    };
    assert_eq!(store(&[(1, 2_000)], &[], 1_000), (1, 0, 2_000));
    assert_eq!(store(&[(1, 3_000)], &[], 1_500), (1, 0, 3_000), "refreshed");
    assert_eq!(store(&[(1, 2_000)], &[], 1_000), (0, 0, 3_000), "sent again");
    assert_eq!(store(&[], &[1], 1_400), (0, 0, 3_000), "an older withdrawal");
    assert_eq!(store(&[], &[1, 7], 1_600), (0, 1, 0), "withdrawn");
    assert_eq!(store(&[(1, 3_000)], &[], 1_500), (0, 0, 0), "sent again");
    assert_eq!(store(&[(1, 3_000)], &[], 1_600), (0, 0, 0), "of the same second");
    assert_eq!(store(&[(1, 4_000)], &[], 1_601), (1, 0, 4_000), "announced again");
    assert_eq!(store(&[(2, 1_500)], &[], 1_602), (0, 0, 4_000), "one that has ended");
}

#[test]
fn sbp_l6_03_what_has_ended_is_deleted_and_counted_out() {
    let (_folder, mut registry) = registry();
    let first = announcement("a", &[(1, 2_000), (2, 3_000)], &[], 1_000);
    registry.store(&first, known(), ROOM, 1_000).unwrap();
    registry.store(&announcement("a", &[], &[2], 1_001), known(), ROOM, 1_001).unwrap();
    assert_eq!(registry.records(), Ok(2));
    assert_eq!(registry.purge(1_600), Ok(false));
    assert_eq!(registry.records(), Ok(2), "a withdrawal is remembered for a while");
    registry.purge(1_601).unwrap();
    assert_eq!((registry.records(), names(&registry, 1, 1_999).len()), (Ok(1), 1));
    registry.purge(2_000).unwrap();
    assert_eq!(registry.records(), Ok(0));
    let (id, url) = (first.gateway_id, first.url);
    registry.purge(1_000 + GATEWAY_KEPT - 1).unwrap();
    assert_eq!(registry.gateway(&id, &url), Ok(Some(known())));
    registry.purge(1_000 + GATEWAY_KEPT).unwrap();
    assert_eq!(registry.gateway(&id, &url), Ok(None));
}

#[test]
fn sbp_l6_03_the_first_gateways_are_named_however_many_come_later() {
    let (_folder, mut registry) = registry();
    let room = Capacity { gateways: 100, ..ROOM };
    for n in 0..40 {
        let announcement = announcement(&format!("g{n}"), &[(1, 9_000 + n)], &[], 1_000 + n);
        registry.store(&announcement, known(), room, 1_000 + n).unwrap();
    }
    // Those that were first, also after they announced again.
    let again = announcement("g0", &[(1, 9_000)], &[], 2_000);
    registry.store(&again, known(), room, 2_000).unwrap();
    let first: Vec<_> = (0..16).map(|n| format!("g{n}")).collect();
    assert_eq!(names(&registry, 1, 2_000), first);
    assert_eq!(names(&registry, 2, 2_000), [""; 0]);
}

#[test]
fn g11_records_and_gateways_are_bounded_and_a_refusal_changes_nothing() {
    let (_folder, mut registry) = registry();
    let cids: Vec<_> = (0..11).map(|n| (n, 9_000)).collect();
    let store = |registry: &mut Registry, name: &str, cids: &[(u8, i64)], room| {
        registry.store(&announcement(name, cids, &[], 1_000), known(), room, 1_000)
    };
    assert_eq!(store(&mut registry, "a", &cids, ROOM), Err(Error::GatewayFull(10)));
    assert_eq!(registry.records(), Ok(0));
    assert!(store(&mut registry, "a", &cids[..10], ROOM).is_ok());
    assert!(store(&mut registry, "a", &cids[..10], ROOM).is_ok(), "no more than there were");
    assert_eq!(store(&mut registry, "a", &cids, ROOM), Err(Error::GatewayFull(10)));
    let small = Capacity { records: 12, ..ROOM };
    assert_eq!(store(&mut registry, "b", &cids[..3], small), Err(Error::Full));
    assert!(store(&mut registry, "b", &cids[..2], small).is_ok());
    assert!(store(&mut registry, "c", &cids[..1], ROOM).is_ok());
    assert_eq!(store(&mut registry, "d", &cids[..1], ROOM), Err(Error::Full), "a fourth gateway");
    assert_eq!(registry.records(), Ok(13));
}

#[test]
fn records_are_there_after_reopening_and_a_foreign_file_is_left_alone() {
    let (folder, mut registry) = registry();
    let one = announcement("a", &[(1, 9_000)], &[], 1_000);
    registry.store(&one, known(), ROOM, 1_000).unwrap();
    drop(registry);
    let registry = Registry::open(folder.path()).unwrap();
    assert_eq!(names(&registry, 1, 1_000), ["a"]);
    let reader = Registry::reader(folder.path()).unwrap();
    assert_eq!(names(&reader, 1, 1_000), ["a"]);
    let mut reader = reader;
    assert!(reader.store(&one, known(), ROOM, 1_000).is_err(), "it only reads");
    let other = tempfile::tempdir().unwrap();
    let conn = Connection::open(other.path().join(FILE)).unwrap();
    conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
    let refused = Registry::open(other.path()).unwrap_err();
    assert!(matches!(refused, RegistryOpenError::Foreign { .. }), "{refused}");
}

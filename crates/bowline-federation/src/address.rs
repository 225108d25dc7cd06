//! Which IP addresses a stranger may send us to: those of the public internet alone.
//!
//! A manifest, a token or a tracker's record may name any host. Whoever asked there would be asked to
//! attack its own network (SSRF): loopback, private networks, the metadata service of a cloud. So what
//! is not public is refused, however it is spelled and whatever it is wrapped in.
//!
//! Pure, and by ranges of the special-purpose registries of IANA. Of IPv6 only 2000::/3 is given out;
//! everything outside is refused without knowing what it is for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not dialled for a stranger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotPublic {
    #[error("a loopback address")]
    Loopback,
    #[error("a private address")]
    Private,
    #[error("a link-local address")]
    LinkLocal,
    #[error("an address that providers share among customers")]
    Shared,
    #[error("the address of a cloud's metadata service")]
    Metadata,
    #[error("a multicast or broadcast address")]
    Multicast,
    #[error("the unspecified address")]
    Unspecified,
    #[error("an IPv6 address with an IPv4 address in it")]
    Embedded,
    #[error("an address that is reserved")]
    Reserved,
}

/// Refuses an address that is not public.
pub fn check(address: IpAddr) -> Result<(), NotPublic> {
    match address {
        IpAddr::V4(address) => check_v4(address),
        IpAddr::V6(address) => check_v6(address),
    }
}

fn check_v4(address: Ipv4Addr) -> Result<(), NotPublic> {
    let refused = match address.octets() {
        [0, 0, 0, 0] => NotPublic::Unspecified,
        // "This network": some systems connect to themselves.
        [0, ..] => NotPublic::Reserved,
        [127, ..] => NotPublic::Loopback,
        [10, ..] | [192, 168, ..] => NotPublic::Private,
        [172, second, ..] if second & 0xf0 == 16 => NotPublic::Private,
        [169, 254, 169, 254] => NotPublic::Metadata,
        [169, 254, ..] => NotPublic::LinkLocal,
        // Alibaba's metadata service is in the shared range, Oracle's in 192.0.0.0/24, Azure's is public.
        [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => NotPublic::Metadata,
        [100, second, ..] if second & 0xc0 == 64 => NotPublic::Shared,
        // Protocol assignments, and three networks for documents.
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => NotPublic::Reserved,
        // Relays of 6to4, and benchmarks.
        [192, 88, 99, _] | [198, 18 | 19, ..] => NotPublic::Reserved,
        [224..=239, ..] | [255, 255, 255, 255] => NotPublic::Multicast,
        [240..=255, ..] => NotPublic::Reserved,
        _ => return Ok(()),
    };
    Err(refused)
}

fn check_v6(address: Ipv6Addr) -> Result<(), NotPublic> {
    let parts = address.segments();
    let refused = match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => NotPublic::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => NotPublic::Loopback,
        // Mapped, translated and compatible IPv4; NAT64 with the well-known and the local prefix.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => NotPublic::Embedded,
        [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, ..] => NotPublic::Embedded,
        // 6to4 and Teredo.
        [0x2002, ..] | [0x2001, 0, ..] => NotPublic::Embedded,
        // ISATAP, in any network.
        [_, _, _, _, 0 | 0x0200, 0x5efe, ..] => NotPublic::Embedded,
        [0xfd00, 0xec2, ..] => NotPublic::Metadata,
        [0xfc00..=0xfdff, ..] => NotPublic::Private,
        // With the deprecated site-local ones.
        [0xfe80..=0xfeff, ..] => NotPublic::LinkLocal,
        [0xff00..=0xffff, ..] => NotPublic::Multicast,
        // Protocol assignments (2001::/23), and two networks for documents.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => NotPublic::Reserved,
        [0x2000..=0x3fff, ..] => return Ok(()),
        _ => NotPublic::Reserved,
    };
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbp_l6_06_only_public_addresses_are_dialled_for_a_stranger() {
        use NotPublic as N;
        for (text, why) in [
            ("0.0.0.0", N::Unspecified),
            ("0.1.2.3", N::Reserved),
            ("10.0.0.1", N::Private),
            ("10.255.255.255", N::Private),
            ("100.64.0.1", N::Shared),
            ("100.127.255.255", N::Shared),
            ("100.100.100.200", N::Metadata),
            ("127.0.0.1", N::Loopback),
            ("127.255.255.254", N::Loopback),
            ("168.63.129.16", N::Metadata),
            ("169.254.0.1", N::LinkLocal),
            ("169.254.169.254", N::Metadata),
            ("172.16.0.1", N::Private),
            ("172.31.255.255", N::Private),
            ("192.0.0.8", N::Reserved),
            ("192.0.0.192", N::Metadata),
            ("192.0.2.1", N::Reserved),
            ("192.88.99.1", N::Reserved),
            ("192.168.1.1", N::Private),
            ("198.18.0.1", N::Reserved),
            ("198.19.255.255", N::Reserved),
            ("198.51.100.7", N::Reserved),
            ("203.0.113.7", N::Reserved),
            ("224.0.0.1", N::Multicast),
            ("239.255.255.255", N::Multicast),
            ("240.0.0.1", N::Reserved),
            ("255.255.255.255", N::Multicast),
            ("::", N::Unspecified),
            ("::1", N::Loopback),
            ("::2", N::Embedded),
            ("::127.0.0.1", N::Embedded),
            ("::ffff:127.0.0.1", N::Embedded),
            ("::ffff:8.8.8.8", N::Embedded),
            ("::ffff:0:10.0.0.1", N::Embedded),
            ("64:ff9b::10.0.0.1", N::Embedded),
            ("64:ff9b:1::1", N::Embedded),
            ("100::1", N::Reserved),
            ("2001::1", N::Embedded),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", N::Embedded),
            ("2001:2::1", N::Reserved),
            ("2001:20::1", N::Reserved),
            ("2001:db8::1", N::Reserved),
            ("2002:7f00:1::", N::Embedded),
            ("2606:4700::5efe:10.0.0.1", N::Embedded),
            ("2606:4700::200:5efe:10.0.0.1", N::Embedded),
            ("3fff::1", N::Reserved),
            ("4000::1", N::Reserved),
            ("5f00::1", N::Reserved),
            ("fc00::1", N::Private),
            ("fd00:ec2::254", N::Metadata),
            ("fd12:3456::1", N::Private),
            ("fe80::1", N::LinkLocal),
            ("fec0::1", N::LinkLocal),
            ("ff02::1", N::Multicast),
        ] {
            assert_eq!(check(text.parse().unwrap()), Err(why), "{text}");
        }
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "128.0.0.1",
            "169.253.0.1",
            "172.15.255.255",
            "172.32.0.1",
            "192.0.1.1",
            "192.167.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00:1450::1",
            "3ffe::1",
        ] {
            assert_eq!(check(text.parse().unwrap()), Ok(()), "{text}");
        }
    }
}

//! Shares of memory between clients: the cases of the policy, and random ones.

use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;
use testkit::cases;

const GRACE: Nanos = Nanos::from_millis(500);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn mib(mib: u64) -> Bytes {
    Bytes::from_mib(mib)
}

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn actions(shares: &mut MemoryShares) -> Vec<MemoryAction> {
    core::iter::from_fn(|| shares.next_action()).collect()
}

fn crowded() -> MemoryShares {
    let mut shares = MemoryShares::new(mib(100), mib(0), GRACE);
    for client in [A, B] {
        shares.join(at(0), client, mib(10)).unwrap();
        shares.want(at(0), client, mib(1000)).unwrap();
    }
    actions(&mut shares);
    shares
}

#[test]
fn a_stream_that_opens_gets_its_buffers_within_the_grace_period() {
    let mut shares = crowded();
    // A had 90 before B came and wanted as much; what A does not give back is taken.
    shares.advance(at(500));
    assert_eq!(shares.held(A), Some((mib(10), mib(40))));
    assert_eq!(shares.held(B), Some((mib(10), mib(40))));
    actions(&mut shares);
    shares.join(at(1000), C, mib(40)).unwrap();
    let by = at(1500);
    let asks = [A, B].map(|client| MemoryAction::Ask {
        client,
        bytes: mib(20),
        by,
    });
    assert_eq!(actions(&mut shares), asks);
    shares.give_back(at(1200), A, mib(20)).unwrap();
    assert_eq!(actions(&mut shares), []);
    assert_eq!(shares.next_deadline(), Some(by));
    shares.advance(at(1499));
    assert_eq!(actions(&mut shares), []);
    shares.advance(by);
    let fixed = MemoryAction::GrantFixed {
        client: C,
        bytes: mib(40),
    };
    assert_eq!(
        actions(&mut shares),
        [
            MemoryAction::Seize {
                client: B,
                bytes: mib(20)
            },
            fixed
        ]
    );
    assert_eq!(shares.held(C), Some((mib(40), mib(0))));
    assert_eq!(shares.next_deadline(), None);
}

#[test]
fn memory_no_longer_missing_is_not_taken() {
    let mut shares = crowded();
    shares.advance(at(500));
    shares.join(at(1000), C, mib(40)).unwrap();
    shares.leave(at(1100), C).unwrap();
    actions(&mut shares);
    shares.advance(at(1500));
    assert_eq!(actions(&mut shares), []);
    assert_eq!(shares.held(A), Some((mib(10), mib(40))));
}

#[test]
fn unused_fair_share_goes_to_the_others() {
    let mut shares = MemoryShares::new(mib(100), mib(4), GRACE);
    for (client, fixed, want) in [(A, 8, 100), (B, 8, 6), (C, 0, 100)] {
        shares.join(at(0), client, mib(fixed)).unwrap();
        shares.want(at(0), client, mib(want)).unwrap();
    }
    shares.advance(at(500));
    let fair = [A, B, C].map(|client| shares.fair_share(client).unwrap());
    assert_eq!(fair, [mib(74), mib(6), mib(0)]);
    shares.want(at(600), A, mib(20)).unwrap();
    shares.give_back(at(600), A, mib(54)).unwrap();
    assert_eq!(
        shares.held(C),
        Some((mib(0), mib(54))),
        "what nobody with a claim wants"
    );
}

#[test]
fn the_reserve_serves_at_once_and_is_filled_again() {
    let mut shares = MemoryShares::new(mib(100), mib(10), GRACE);
    shares.join(at(0), A, mib(20)).unwrap();
    shares.want(at(0), A, mib(1000)).unwrap();
    assert_eq!(shares.free(), mib(10));
    actions(&mut shares);
    shares.join(at(1), B, mib(10)).unwrap();
    let fixed = MemoryAction::GrantFixed {
        client: B,
        bytes: mib(10),
    };
    let ask = MemoryAction::Ask {
        client: A,
        bytes: mib(10),
        by: at(501),
    };
    assert_eq!(actions(&mut shares), [fixed, ask]);
}

#[test]
fn promises_that_do_not_fit_are_refused() {
    let mut shares = MemoryShares::new(mib(100), mib(10), GRACE);
    shares.join(at(0), A, mib(60)).unwrap();
    let refused = MemoryError::NotEnough {
        asked: mib(31),
        available: mib(30),
    };
    assert_eq!(shares.join(at(0), B, mib(31)), Err(refused));
    assert_eq!(
        shares.join(at(0), A, mib(1)),
        Err(MemoryError::Duplicate(A))
    );
    assert_eq!(shares.want(at(0), B, mib(1)), Err(MemoryError::Unknown(B)));
    assert_eq!(shares.leave(at(0), B), Err(MemoryError::Unknown(B)));
    let not_held = MemoryError::NotHeld {
        given: mib(1),
        held: mib(0),
    };
    assert_eq!(shares.give_back(at(0), A, mib(1)), Err(not_held));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u64, u64),
    Leave(u64),
    Want(u64, u64),
    GiveBack(u64, u64),
    Pass(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let client = 0_u64..6;
    prop_oneof![
        (client.clone(), 0_u64..300).prop_map(|(client, pages)| Step::Join(client, pages)),
        client.clone().prop_map(Step::Leave),
        (client.clone(), 0_u64..1200).prop_map(|(client, pages)| Step::Want(client, pages)),
        (client, 0_u64..200).prop_map(|(client, pages)| Step::GiveBack(client, pages)),
        (0_u64..700).prop_map(Step::Pass),
    ]
}

/// The state that the pool would derive from the actions alone.
#[derive(Default, Debug, Clone, Copy)]
struct Known {
    fixed: u64,
    variable: u64,
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// Never more than the arena; fixed parts are never taken; nobody at or below its fair share is
    /// asked or taken from; and once everybody had its grace, shares are fair and the reserve is full.
    #[test]
    fn shares_are_kept(steps in proptest::collection::vec(any_step(), 1..80), reserve in 0_u64..200) {
        let unit = MEMORY_UNIT.get();
        let mut shares = MemoryShares::new(Bytes(1000 * unit), Bytes(reserve * unit), GRACE);
        let mut known: BTreeMap<ClientId, Known> = BTreeMap::new();
        let mut now = at(0);
        let settle = [Step::Pass(500), Step::Pass(500), Step::Pass(500)];
        for step in steps.into_iter().chain(settle) {
            match step {
                Step::Join(client, pages) => {
                    if shares.join(now, ClientId(client), Bytes(pages * unit)).is_ok() {
                        known.insert(ClientId(client), Known::default());
                    }
                }
                Step::Leave(client) => {
                    let left = shares.leave(now, ClientId(client)).is_ok();
                    prop_assert_eq!(left, known.remove(&ClientId(client)).is_some());
                }
                Step::Want(client, pages) => {
                    let _unknown = shares.want(now, ClientId(client), Bytes(pages * unit));
                }
                Step::GiveBack(client, pages) => {
                    if shares.give_back(now, ClientId(client), Bytes(pages * unit)).is_ok() {
                        known.get_mut(&ClientId(client)).unwrap().variable -= pages * unit;
                    }
                }
                Step::Pass(ms) => {
                    now += Nanos::from_millis(ms);
                    shares.advance(now);
                }
            }
            while let Some(action) = shares.next_action() {
                match action {
                    MemoryAction::GrantFixed { client, bytes } => {
                        prop_assert_eq!(known[&client].fixed, 0);
                        known.get_mut(&client).unwrap().fixed = bytes.get();
                    }
                    MemoryAction::GrantVariable { client, bytes } => {
                        known.get_mut(&client).unwrap().variable += bytes.get();
                    }
                    MemoryAction::Ask { client, bytes, by } => {
                        prop_assert_eq!(by, now + GRACE);
                        let fair = shares.fair_share(client).unwrap();
                        prop_assert!(known[&client].variable - bytes.get() >= fair.get());
                    }
                    MemoryAction::Seize { client, bytes } => {
                        let fair = shares.fair_share(client).unwrap();
                        prop_assert!(known[&client].variable - bytes.get() >= fair.get());
                        known.get_mut(&client).unwrap().variable -= bytes.get();
                    }
                }
            }
            let held: u64 = known.values().map(|known| known.fixed + known.variable).sum();
            prop_assert_eq!(held + shares.free().get(), 1000 * unit);
            for (client, known) in &known {
                let (fixed, variable) = shares.held(*client).unwrap();
                prop_assert_eq!((fixed.get(), variable.get()), (known.fixed, known.variable));
            }
        }
        prop_assert!(shares.free().get() >= reserve * unit);
        for (client, share) in &shares.shares {
            prop_assert!(share.fixed_granted, "{client:?}");
            prop_assert!(share.held >= share.fair, "{client:?} {share:?}");
        }
    }
}

//! The quick way back through the deadlines against sums over all lines.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Found, Line, Near, Question, demand, least, share};
use testkit::cases;

const END: u64 = 400;

/// A line of small numbers, some of which end.
fn line() -> impl Strategy<Value = Line> {
    let more = prop_oneof![Just(u64::MAX), 0..6_u64];
    (1..60_u64, 1..40_u64, 0..30_u64, more, any::<bool>()).prop_flat_map(
        |(at, period, first, more, pending)| {
            (1..=period).prop_map(move |service| Line {
                at,
                first,
                service,
                period,
                more,
                pending,
                share: if more == u64::MAX {
                    share(service, period)
                } else {
                    0
                },
            })
        },
    )
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn demand_on_the_way_back_is_demand(
        lines in vec(line(), 1..8),
        from in 0..60_u64,
        instants in vec(0..END, 1..20),
    ) {
        let mut instants = instants;
        instants.sort_unstable_by(|a, b| b.cmp(a));
        let mut near = Near::default();
        near.set(&lines, from, instants[0]);
        for d in instants {
            let (quick, summed) = (near.demand(d), demand(&lines, from, d));
            prop_assert_eq!((quick.cost, quick.last), (summed.cost, summed.last), "at {}", d);
        }
    }

    #[test]
    fn the_least_value_is_that_of_every_deadline(
        lines in vec(line(), 1..8),
        busy in 0..20_u64,
        before in 60..END,
    ) {
        // Nobody is late.
        let now = 0;
        let question = Question {
            now,
            from: now,
            free: now + busy,
            before,
            hint: 0,
            hyperperiod: None,
        };
        let every = (now + 1..before)
            .map(|d| (demand(&lines, now, d), d))
            .filter(|(demand, d)| demand.last == *d)
            .map(|(demand, d)| d as i64 - question.free as i64 - demand.cost as i64)
            .min();
        match least(&lines, &question, None, &mut Near::default()) {
            Found::Least { value, .. } => {
                prop_assert_eq!(Some(value).filter(|&value| value != i64::MAX), every);
            }
            Found::Unknown => prop_assert!(false, "a few lines and {} instants", END),
        }
    }
}

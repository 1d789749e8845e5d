use super::*;

/// Both ways to share a link of two disks, and of three.
const LINKS: [(Sharing, usize); 4] = [
    (Sharing::Inflate, 2),
    (Sharing::Inflate, 3),
    (Sharing::Lend, 2),
    (Sharing::Lend, 3),
];

fn options((sharing, disks): (Sharing, usize), sets: u64) -> LinkOptions {
    LinkOptions {
        scheduler: Policy::Exact,
        sharing,
        disks,
        sets,
        seed: testkit::seed("links", None),
        threads: 2,
        breaks_rule: false,
    }
}

#[test]
fn nobody_is_late_on_a_link_whose_rule_is_kept() {
    for link in LINKS {
        for (scheduler, sets) in [(Policy::Exact, 300), (Policy::DeltaL, 100)] {
            let options = LinkOptions {
                scheduler,
                ..options(link, sets)
            };
            let found = search(&options, &|_| {});
            assert_eq!(found.first_miss, None, "{options:?}");
            assert_eq!(found.sets_with_misses, 0, "{options:?}");
            assert_eq!(found.sets_beyond_bounds, 0, "{options:?}");
        }
    }
}

#[test]
fn somebody_is_late_in_most_sets_on_a_link_whose_rule_is_broken() {
    for link in LINKS {
        let options = LinkOptions {
            breaks_rule: true,
            ..options(link, 200)
        };
        let found = search(&options, &|_| {});
        assert!(found.sets_with_misses > 150, "{options:?}: {found:?}");
        let takes_longer = found.sets_beyond_bounds > 150;
        let is_inflated = link.0 == Sharing::Inflate;
        assert_eq!(takes_longer, is_inflated, "{options:?}: {found:?}");
    }
}

#[test]
fn schedulers_that_are_caught_on_a_disk_are_caught_on_a_link() {
    for link in LINKS {
        for (scheduler, least) in [
            (Policy::DeltaLPublished, 10),
            (Policy::Lst, 90),
            (Policy::Edf, 90),
        ] {
            let options = LinkOptions {
                scheduler,
                ..options(link, 100)
            };
            let found = search(&options, &|_| {});
            assert!(found.sets_with_misses >= least, "{options:?}: {found:?}");
        }
    }
}

#[test]
fn the_result_is_the_same_on_any_number_of_threads() {
    for link in LINKS {
        let of = |threads| {
            let options = LinkOptions {
                scheduler: Policy::DeltaLPublished,
                threads,
                seed: 1,
                ..options(link, 150)
            };
            search(&options, &|_| {})
        };
        let alone = of(1);
        assert!(alone.first_miss.is_some(), "{link:?}");
        assert_eq!(alone, of(4), "{link:?}");
    }
}

/// Plays a link, on which nobody is late.
fn played(options: &LinkOptions, link: &mut dyn Link, sets: &[TaskSet]) {
    let disk = |set| Disk {
        attack: Attack::new(set, options.scheduler, Pattern::Mixed, 1, options.seed),
        wakes: 0,
    };
    let mut disks: Vec<Disk<'_>> = sets.iter().map(disk).collect();
    assert_eq!(late_job(link, &mut disks), None, "{options:?}");
}

#[test]
fn more_disks_transfer_than_there_are_places_only_if_pieces_overrun() {
    let options = options((Sharing::Lend, 3), 1);
    let mut dice = Dice(Xoshiro256PlusPlus::seed_from_u64(options.seed));
    let mut overran = 0;
    for _ in 0..50 {
        let set = LinkSet::drawn(&options, &mut dice);
        let places = set.sets.len();
        let own = Dice(Xoshiro256PlusPlus::seed_from_u64(dice.below(u64::MAX)));
        let mut link = lend::Lent::new(places, 3 - places, false, own);
        played(&options, &mut link, &set.sets);
        if link.ends == lend::Ends::Late {
            overran += usize::from(link.transferring_max > places);
        } else {
            assert_eq!(link.transferring_max, places, "{options:?}");
        }
    }
    assert!(overran > 0, "{options:?}");
}

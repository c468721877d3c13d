//! A reusable assertion for everything that can be resumed: restored at any point, it continues as without the interruption.

use std::fmt::Debug;

/// An iterator whose position can be saved.
pub trait Resumable: Iterator {
    type Saved;

    /// Returns what to save for resuming here.
    fn save(&self) -> Self::Saved;
}

/// Saves before every element, restores each save in a fresh iterator and compares the whole rest. `make` restores, or
/// starts from the beginning.
pub fn restores_everywhere<I>(make: impl Fn(Option<I::Saved>) -> I)
where
    I: Resumable<Item: PartialEq + Debug>,
{
    let mut whole = make(None);
    let mut saves = Vec::new();
    let mut elements = Vec::new();
    loop {
        saves.push(whole.save());
        match whole.next() {
            Some(element) => elements.push(element),
            None => break,
        }
    }
    assert!(elements.len() > 1, "the iterator is too short for the test");
    for (i, saved) in saves.into_iter().enumerate() {
        let mut restored = make(Some(saved));
        for (j, element) in elements.iter().enumerate().skip(i) {
            let found = restored.next();
            assert_eq!(found.as_ref(), Some(element), "restored before element {i}, differs at {j}");
        }
        assert!(restored.next().is_none(), "restored before element {i}, does not end");
    }
}

#[test]
fn the_assertion_fails_for_an_iterator_that_loses_state() {
    struct Forgets(u32);
    impl Iterator for Forgets {
        type Item = u32;
        fn next(&mut self) -> Option<u32> {
            self.0 += 1;
            (self.0 < 5).then_some(self.0)
        }
    }
    impl Resumable for Forgets {
        type Saved = u32;
        fn save(&self) -> u32 {
            self.0 / 2
        }
    }
    let caught = std::panic::catch_unwind(|| restores_everywhere(|saved| Forgets(saved.unwrap_or(0))));
    assert!(caught.is_err());
}

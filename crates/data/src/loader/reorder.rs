//! Finished steps wait here until it is their turn.

/// A ring of places for the next `depth` steps.
pub(super) struct Reorder<T> {
    next: u64,
    places: Vec<Option<T>>,
}

impl<T> Reorder<T> {
    pub(super) fn new(first: u64, depth: usize) -> Self {
        Reorder { next: first, places: (0..depth).map(|_| None).collect() }
    }

    /// The step whose turn it is.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a step has a place: no further ahead than the ring is long.
    pub(super) fn has_place(&self, step: u64) -> bool {
        step >= self.next && step - self.next < self.places.len() as u64
    }

    /// Whether the step whose turn it is has been made.
    pub(super) fn is_ready(&self) -> bool {
        self.places[self.place(self.next)].is_some()
    }

    /// Puts a step to its place.
    pub(super) fn insert(&mut self, step: u64, value: T) {
        assert!(self.has_place(step), "step {step} was made although {} is next", self.next);
        let place = self.place(step);
        assert!(self.places[place].is_none(), "step {step} was made twice");
        self.places[place] = Some(value);
    }

    /// The step whose turn it is, if it has been made.
    pub(super) fn pop(&mut self) -> Option<T> {
        let place = self.place(self.next);
        let value = self.places[place].take()?;
        self.next += 1;
        Some(value)
    }

    /// Takes back the step furthest ahead that is `wanted` and lies behind `step`: to be made again later.
    pub(super) fn take_back(&mut self, step: u64, wanted: impl Fn(&T) -> bool) -> Option<(u64, T)> {
        let end = self.next + self.places.len() as u64;
        let last =
            (step + 1..end).rev().find(|&at| self.places[self.place(at)].as_ref().is_some_and(&wanted))?;
        let place = self.place(last);
        Some((last, self.places[place].take()?))
    }

    /// Everything that waits, in no order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.places.iter_mut().filter_map(Option::take)
    }

    fn place(&self, step: u64) -> usize {
        (step % self.places.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_the_order_of_arrival_steps_leave_in_order(
            first in 0u64..1000, depth in 1usize..9, choices in proptest::collection::vec(0usize..9, 200),
        ) {
            let mut ring = Reorder::new(first, depth);
            let (mut making, mut claimed, mut out) = (Vec::new(), first, Vec::new());
            for choice in choices {
                if ring.has_place(claimed) && (choice % 2 == 0 || making.is_empty()) {
                    making.push(claimed);
                    claimed += 1;
                } else if !making.is_empty() {
                    let step = making.swap_remove(choice % making.len());
                    ring.insert(step, step);
                }
                while let Some(step) = ring.pop() {
                    out.push(step);
                }
            }
            prop_assert!(out.iter().copied().eq(first..first + out.len() as u64));
        }
    }
}

//! Buffers finished steps until it is their turn.

/// A ring buffer for the next `depth` steps.
pub(super) struct Reorder<T> {
    next: u64,
    slots: Vec<Option<T>>,
}

impl<T> Reorder<T> {
    pub(super) fn new(first: u64, depth: usize) -> Self {
        Reorder { next: first, slots: (0..depth).map(|_| None).collect() }
    }

    /// Returns the next step in order.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns whether a step is within the ring.
    pub(super) fn has_slot(&self, step: u64) -> bool {
        step >= self.next && step - self.next < self.slots.len() as u64
    }

    /// Returns whether the next step in order is finished.
    pub(super) fn is_ready(&self) -> bool {
        self.slots[self.slot(self.next)].is_some()
    }

    /// Stores a finished step.
    pub(super) fn insert(&mut self, step: u64, value: T) {
        assert!(self.has_slot(step), "step {step} is not within the ring that begins at {}", self.next);
        let slot = self.slot(step);
        assert!(self.slots[slot].is_none(), "step {step} was made twice");
        self.slots[slot] = Some(value);
    }

    /// Takes the next step in order if it is finished.
    pub(super) fn pop(&mut self) -> Option<T> {
        let slot = self.slot(self.next);
        let value = self.slots[slot].take()?;
        self.next += 1;
        Some(value)
    }

    /// Removes the step furthest ahead that is after `step` and matches `wanted`; it has to be made again later.
    pub(super) fn take_last_after(&mut self, step: u64, wanted: impl Fn(&T) -> bool) -> Option<(u64, T)> {
        let end = self.next + self.slots.len() as u64;
        let last =
            (step + 1..end).rev().find(|&at| self.slots[self.slot(at)].as_ref().is_some_and(&wanted))?;
        let slot = self.slot(last);
        Some((last, self.slots[slot].take()?))
    }

    /// Removes all finished steps, in no particular order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.slots.iter_mut().filter_map(Option::take)
    }

    fn slot(&self, step: u64) -> usize {
        (step % self.slots.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn steps_leave_in_order_whatever_the_order_of_arrival(
            first in 0u64..1000, depth in 1usize..9, choices in proptest::collection::vec(0usize..9, 200),
        ) {
            let mut ring = Reorder::new(first, depth);
            let (mut making, mut claimed, mut out) = (Vec::new(), first, Vec::new());
            for choice in choices {
                if ring.has_slot(claimed) && (choice % 2 == 0 || making.is_empty()) {
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

//! A voice: a speaker as the model represents it, and mixes of several voices.

/// A voice as input of the model.
///
/// | field | shape |
/// |---|---|
/// | `conditioning` | `[latents, width]` of the GPT |
/// | `speaker` | `[channels]` of the decoder |
#[derive(Clone, Debug, PartialEq)]
pub struct Voice {
    /// Conditioning of the GPT, `[latents, width]`.
    pub conditioning: Vec<f32>,
    /// Speaker vector of the decoder; `None` without a decoder.
    pub speaker: Option<Vec<f32>>,
}

impl Voice {
    /// Returns the weighted mean of voices of one model. The decoder expects speaker vectors of a certain length (1 for a single
    /// recording), so the mean is scaled to the weighted mean of their lengths.
    ///
    /// `None` without voices, with weights that are not above 0, or for voices of different sizes.
    pub fn mix(parts: &[(Voice, f32)]) -> Option<Voice> {
        let total: f64 = parts.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let usable = parts.iter().all(|(_, weight)| *weight > 0.0) && total.is_finite() && total > 0.0;
        if !usable {
            return None;
        }
        let conditioning = mean(parts.iter().map(|(voice, weight)| (&voice.conditioning[..], *weight)))?;
        let speakers: Option<Vec<(&[f32], f32)>> =
            parts.iter().map(|(voice, weight)| Some((voice.speaker.as_deref()?, *weight))).collect();
        let speaker = match speakers {
            None if parts.iter().any(|(voice, _)| voice.speaker.is_some()) => return None,
            None => None,
            Some(speakers) => {
                let mut mixed = mean(speakers.iter().copied())?;
                let wanted =
                    speakers.iter().map(|(one, weight)| length(one) * f64::from(*weight)).sum::<f64>()
                        / total;
                let found = length(&mixed);
                // Opposite vectors cancel out; the remainder has no meaningful direction and is not scaled up.
                if found > 1e-3 * wanted {
                    mixed.iter_mut().for_each(|value| *value *= (wanted / found) as f32);
                }
                Some(mixed)
            }
        };
        Some(Voice { conditioning, speaker })
    }
}

/// Euclidean length.
fn length(vector: &[f32]) -> f64 {
    vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()
}

/// Weighted mean of vectors of one size; `None` if the sizes differ.
fn mean<'a>(vectors: impl Iterator<Item = (&'a [f32], f32)>) -> Option<Vec<f32>> {
    let (mut sums, mut total): (Vec<f64>, f64) = (Vec::new(), 0.0);
    for (vector, weight) in vectors {
        if total == 0.0 {
            sums = vec![0.0; vector.len()];
        }
        if sums.len() != vector.len() {
            return None;
        }
        let weight = f64::from(weight);
        sums.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * f64::from(*value));
        total += weight;
    }
    Some(sums.into_iter().map(|sum| (sum / total) as f32).collect())
}

/// Cosine of the angle between two vectors; 0 if one of them is zero.
pub(crate) fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot: f64 = one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    let lengths = length(one) * length(other);
    if lengths > 0.0 { dot / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(conditioning: [f32; 2], speaker: Option<[f32; 2]>) -> Voice {
        Voice { conditioning: conditioning.to_vec(), speaker: speaker.map(|vector| vector.to_vec()) }
    }

    #[test]
    fn a_mix_is_the_weighted_mean_and_its_speaker_vector_is_as_long_as_theirs() {
        let anna = voice([3.0, 0.0], Some([1.0, 0.0]));
        let ben = voice([0.0, 6.0], Some([0.0, 1.0]));
        let mixed = Voice::mix(&[(anna.clone(), 2.0), (ben.clone(), 1.0)]).unwrap();
        assert_eq!(mixed.conditioning, [2.0, 2.0]);
        let speaker = mixed.speaker.unwrap();
        assert!((length(&speaker) - 1.0).abs() < 1e-6, "{speaker:?}");
        assert!((speaker[0] / speaker[1] - 2.0).abs() < 1e-5, "{speaker:?}");
        // A single voice is unchanged by its weight.
        let alone = Voice::mix(&[(anna.clone(), 7.0)]).unwrap();
        assert_eq!(alone, anna);
        // Means of several references are shorter than 1, and stay so.
        let short = voice([0.0, 0.0], Some([0.8, 0.0]));
        let mixed = Voice::mix(&[(short.clone(), 1.0), (short.clone(), 1.0)]).unwrap();
        assert!((length(mixed.speaker.as_deref().unwrap()) - 0.8).abs() < 1e-6);
    }

    #[test]
    fn incompatible_voices_are_not_mixed() {
        let anna = voice([3.0, 0.0], Some([1.0, 0.0]));
        let mute = voice([3.0, 0.0], None);
        let long = Voice { conditioning: vec![0.0; 3], speaker: Some(vec![1.0, 0.0]) };
        assert_eq!(Voice::mix(&[]), None);
        assert_eq!(Voice::mix(&[(anna.clone(), 0.0)]), None);
        assert_eq!(Voice::mix(&[(anna.clone(), -1.0), (anna.clone(), 2.0)]), None);
        assert_eq!(Voice::mix(&[(anna.clone(), f32::NAN)]), None);
        assert_eq!(Voice::mix(&[(anna.clone(), 1.0), (long, 1.0)]), None);
        assert_eq!(Voice::mix(&[(anna, 1.0), (mute.clone(), 1.0)]), None);
        assert!(Voice::mix(&[(mute.clone(), 1.0), (mute, 1.0)]).unwrap().speaker.is_none());
        // Opposite speakers have no mean direction.
        let (left, right) = (voice([0.0; 2], Some([1.0, 0.0])), voice([0.0; 2], Some([-1.0, 0.0])));
        let mixed = Voice::mix(&[(left, 1.0), (right, 1.0)]).unwrap();
        assert!(mixed.speaker.unwrap().iter().all(|value| value.abs() < 1e-3));
    }
}

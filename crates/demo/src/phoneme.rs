//! The phonemes of English and Persian with their acoustic parameters: formants, voicing, noise, length.
//!
//! Frequencies are those of an adult man, from textbooks of acoustic phonetics; a voice scales them by its vocal tract.
//! Levels are relative to the RMS of a vowel.

/// Manner of articulation; selects how `tracks` renders the phoneme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Vowel,
    /// w, y.
    Glide,
    /// l, English r.
    Liquid,
    /// Persian r.
    Tap,
    Nasal,
    Fricative,
    Plosive,
    Affricate,
    /// h: breath through the formants of the neighbour.
    Aspirate,
    /// The glottal stop.
    Glottal,
}

/// Two bands of noise, of a fricative or a plosive's burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// Centre frequency in Hz; 0 follows the second formant, by which velars are recognised.
    pub centre: [f64; 2],
    pub width: [f64; 2],
    pub level: [f64; 2],
}

const QUIET: Noise = Noise { centre: [3000.0, 6000.0], width: [1000.0, 2000.0], level: [0.0, 0.0] };

/// Acoustic parameters of a phoneme.
#[derive(Debug)]
pub(crate) struct Traits {
    pub name: &'static str,
    pub manner: Manner,
    pub voiced: bool,
    pub formants: [f64; 3],
    /// Formants at the end of a diphthong; equal to `formants` for other phonemes.
    pub end: [f64; 3],
    /// How far a consonant's formants follow the neighbouring vowel: 0 not at all, 1 entirely.
    pub coarticulation: f64,
    /// Length in seconds before shortening, and the minimum length.
    pub length: f64,
    pub min_length: f64,
    pub noise: Noise,
    /// Zero of the nasal tract in Hz; only for nasals.
    pub zero: f64,
}

const BASE: Traits = Traits {
    name: "",
    manner: Manner::Vowel,
    voiced: true,
    formants: [500.0, 1500.0, 2500.0],
    end: [500.0, 1500.0, 2500.0],
    coarticulation: 0.0,
    length: 0.08,
    min_length: 0.04,
    noise: QUIET,
    zero: 0.0,
};

const fn vowel(name: &'static str, length: f64, formants: [f64; 3]) -> Traits {
    Traits { name, length, min_length: 0.5 * length, formants, end: formants, ..BASE }
}

const fn diphthong(name: &'static str, from: [f64; 3], to: [f64; 3]) -> Traits {
    Traits { name, length: 0.185, min_length: 0.105, formants: from, end: to, ..BASE }
}

const fn sonorant(
    name: &'static str,
    manner: Manner,
    length: f64,
    formants: [f64; 3],
    coarticulation: f64,
) -> Traits {
    Traits { name, manner, length, min_length: 0.6 * length, formants, end: formants, coarticulation, ..BASE }
}

const fn nasal(name: &'static str, formants: [f64; 3], coarticulation: f64, zero: f64) -> Traits {
    Traits { zero, ..sonorant(name, Manner::Nasal, 0.075, formants, coarticulation) }
}

#[derive(Clone, Copy)]
enum Voicing {
    Voiced,
    Voiceless,
}
use Voicing::{Voiced, Voiceless};

/// Place of articulation of a plosive or fricative: formants at the constriction, and their coarticulation.
#[derive(Clone, Copy)]
struct Place([f64; 3], f64);

const LIPS: Place = Place([240.0, 950.0, 2250.0], 0.55);
const TEETH: Place = Place([280.0, 1300.0, 2550.0], 0.45);
const RIDGE: Place = Place([240.0, 1750.0, 2650.0], 0.35);
const PALATE: Place = Place([260.0, 1950.0, 2500.0], 0.3);
const VELUM: Place = Place([250.0, 1750.0, 2200.0], 0.75);
const UVULA: Place = Place([420.0, 1200.0, 2350.0], 0.5);

const fn obstruent(
    name: &'static str,
    manner: Manner,
    voicing: Voicing,
    place: Place,
    length: f64,
    noise: Noise,
) -> Traits {
    let Place(formants, coarticulation) = place;
    let voiced = matches!(voicing, Voiced);
    let min_length = 0.6 * length;
    Traits {
        name,
        manner,
        voiced,
        formants,
        end: formants,
        coarticulation,
        length,
        min_length,
        noise,
        ..BASE
    }
}

const fn noise(centre: [f64; 2], width: [f64; 2], level: [f64; 2]) -> Noise {
    Noise { centre, width, level }
}

use Manner::{Affricate, Aspirate, Fricative, Glide, Glottal, Liquid, Plosive, Tap};

/// All phonemes. English ones have their ARPAbet names; Persian vowels and phonemes found only in Persian have the letters
/// of the notation in `persian`.
#[rustfmt::skip]
pub(crate) static INVENTORY: [Traits; 50] = [
    // English vowels
    vowel("IY", 0.135, [290.0, 2250.0, 2900.0]),
    vowel("IH", 0.095, [400.0, 1920.0, 2550.0]),
    vowel("EH", 0.11, [550.0, 1780.0, 2500.0]),
    vowel("AE", 0.15, [680.0, 1720.0, 2430.0]),
    vowel("AA", 0.15, [730.0, 1120.0, 2450.0]),
    vowel("AO", 0.155, [590.0, 900.0, 2500.0]),
    vowel("UH", 0.1, [450.0, 1080.0, 2300.0]),
    vowel("UW", 0.135, [320.0, 950.0, 2250.0]),
    vowel("AH", 0.11, [630.0, 1230.0, 2450.0]),
    vowel("AX", 0.075, [490.0, 1450.0, 2450.0]),
    vowel("ER", 0.14, [470.0, 1330.0, 1690.0]),
    diphthong("EY", [490.0, 1930.0, 2550.0], [340.0, 2180.0, 2700.0]),
    diphthong("AY", [730.0, 1250.0, 2500.0], [380.0, 2050.0, 2600.0]),
    diphthong("AW", [740.0, 1300.0, 2450.0], [420.0, 930.0, 2350.0]),
    diphthong("OY", [560.0, 880.0, 2450.0], [380.0, 2000.0, 2550.0]),
    diphthong("OW", [530.0, 1020.0, 2400.0], [380.0, 820.0, 2300.0]),
    // Persian vowels: three short, three long
    vowel("a", 0.1, [690.0, 1600.0, 2450.0]),
    vowel("e", 0.09, [450.0, 1950.0, 2550.0]),
    vowel("o", 0.095, [440.0, 900.0, 2450.0]),
    vowel("A", 0.15, [640.0, 1020.0, 2500.0]),
    vowel("i", 0.13, [285.0, 2270.0, 2950.0]),
    vowel("u", 0.135, [315.0, 830.0, 2300.0]),
    // Sonorants
    sonorant("W", Glide, 0.07, [300.0, 700.0, 2200.0], 0.1),
    sonorant("Y", Glide, 0.07, [275.0, 2200.0, 2900.0], 0.1),
    sonorant("L", Liquid, 0.07, [350.0, 1150.0, 2750.0], 0.25),
    sonorant("R", Liquid, 0.075, [330.0, 1180.0, 1580.0], 0.12),
    sonorant("RR", Tap, 0.065, [430.0, 1450.0, 2350.0], 0.35),
    nasal("M", [260.0, 1000.0, 2250.0], 0.5, 700.0),
    nasal("N", [260.0, 1600.0, 2600.0], 0.35, 1050.0),
    nasal("NG", [260.0, 1900.0, 2250.0], 0.6, 1500.0),
    // Fricatives
    obstruent("F", Fricative, Voiceless, LIPS, 0.1, noise([7500.0, 1400.0], [4500.0, 900.0], [0.13, 0.03])),
    obstruent("V", Fricative, Voiced, LIPS, 0.065, noise([7500.0, 1400.0], [4500.0, 900.0], [0.05, 0.01])),
    obstruent("TH", Fricative, Voiceless, TEETH, 0.095, noise([5600.0, 8000.0], [2600.0, 3000.0], [0.09, 0.07])),
    obstruent("DH", Fricative, Voiced, TEETH, 0.05, noise([5600.0, 8000.0], [2600.0, 3000.0], [0.03, 0.02])),
    obstruent("S", Fricative, Voiceless, RIDGE, 0.11, noise([5600.0, 7600.0], [900.0, 1800.0], [0.3, 0.3])),
    obstruent("Z", Fricative, Voiced, RIDGE, 0.08, noise([5600.0, 7600.0], [900.0, 1800.0], [0.14, 0.14])),
    obstruent("SH", Fricative, Voiceless, PALATE, 0.115, noise([2750.0, 4400.0], [500.0, 1500.0], [0.32, 0.25])),
    obstruent("ZH", Fricative, Voiced, PALATE, 0.08, noise([2750.0, 4400.0], [500.0, 1500.0], [0.14, 0.11])),
    obstruent("X", Fricative, Voiceless, UVULA, 0.105, noise([1350.0, 3400.0], [350.0, 1200.0], [0.27, 0.09])),
    sonorant("HH", Aspirate, 0.065, [500.0, 1500.0, 2500.0], 1.0),
    // Plosives and affricates
    obstruent("P", Plosive, Voiceless, LIPS, 0.08, noise([800.0, 2500.0], [700.0, 3000.0], [0.18, 0.05])),
    obstruent("B", Plosive, Voiced, LIPS, 0.075, noise([700.0, 2200.0], [700.0, 3000.0], [0.12, 0.03])),
    obstruent("T", Plosive, Voiceless, RIDGE, 0.075, noise([4000.0, 6500.0], [1200.0, 3000.0], [0.32, 0.18])),
    obstruent("D", Plosive, Voiced, RIDGE, 0.065, noise([3600.0, 6000.0], [1200.0, 3000.0], [0.18, 0.09])),
    obstruent("K", Plosive, Voiceless, VELUM, 0.08, noise([0.0, 4200.0], [350.0, 1500.0], [0.36, 0.08])),
    obstruent("G", Plosive, Voiced, VELUM, 0.07, noise([0.0, 4000.0], [350.0, 1500.0], [0.22, 0.04])),
    obstruent("Q", Plosive, Voiced, UVULA, 0.075, noise([1250.0, 3300.0], [400.0, 1200.0], [0.24, 0.05])),
    obstruent("CH", Affricate, Voiceless, PALATE, 0.13, noise([2850.0, 4600.0], [550.0, 1600.0], [0.34, 0.26])),
    obstruent("JH", Affricate, Voiced, PALATE, 0.105, noise([2750.0, 4400.0], [550.0, 1600.0], [0.18, 0.13])),
    sonorant("QQ", Glottal, 0.055, [500.0, 1500.0, 2500.0], 1.0),
];

/// A phoneme of the inventory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Phoneme(u8);

impl Phoneme {
    /// Finds a phoneme by name: ARPAbet for English, `a e o A i u RR X Q QQ` for those added by Persian.
    pub fn from_name(name: &str) -> Option<Phoneme> {
        INVENTORY.iter().position(|traits| traits.name == name).map(|at| Phoneme(at as u8))
    }

    pub(crate) fn traits(self) -> &'static Traits {
        &INVENTORY[usize::from(self.0)]
    }

    /// Name in the inventory.
    pub fn name(self) -> &'static str {
        self.traits().name
    }

    /// Whether it forms a syllable.
    pub fn is_vowel(self) -> bool {
        self.traits().manner == Manner::Vowel
    }

    pub(crate) fn manner(self) -> Manner {
        self.traits().manner
    }
}

impl std::fmt::Debug for Phoneme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phoneme_is_found_by_its_name() {
        for (at, traits) in INVENTORY.iter().enumerate() {
            assert_eq!(Phoneme::from_name(traits.name), Some(Phoneme(at as u8)), "{}", traits.name);
            assert!(traits.min_length <= traits.length && traits.min_length > 0.02, "{}", traits.name);
            assert!(traits.formants.is_sorted() && traits.end.is_sorted(), "{}", traits.name);
        }
        assert_eq!(Phoneme::from_name("ZZ"), None);
    }
}

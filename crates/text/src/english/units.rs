//! Units of measure after a number: "5 kg", "120 km/h", "21°C".

use super::words::spoken;
use crate::rewrite::{pattern, rewrite};

/// Written and spoken forms of a unit.
pub struct Unit {
    /// Written forms, case-sensitive.
    pub symbols: &'static [&'static str],
    /// Spoken form after the number one.
    one: &'static str,
    /// Spoken form after any other number.
    many: &'static str,
}

const fn unit(symbols: &'static [&'static str], one: &'static str, many: &'static str) -> Unit {
    Unit { symbols, one, many }
}

/// All units. "in" is not included: "5 in the morning" is more common than five inches.
pub const UNITS: [Unit; 63] = [
    unit(&["km/h", "kmh", "kph", "km/hr"], "kilometer per hour", "kilometers per hour"),
    unit(&["m/s"], "meter per second", "meters per second"),
    unit(&["mph"], "mile per hour", "miles per hour"),
    unit(&["km²", "km2"], "square kilometer", "square kilometers"),
    unit(&["m²", "m2"], "square meter", "square meters"),
    unit(&["cm²", "cm2"], "square centimeter", "square centimeters"),
    unit(&["m³", "m3"], "cubic meter", "cubic meters"),
    unit(&["cm³", "cm3"], "cubic centimeter", "cubic centimeters"),
    unit(&["ft²"], "square foot", "square feet"),
    unit(&["km"], "kilometer", "kilometers"),
    unit(&["m"], "meter", "meters"),
    unit(&["cm"], "centimeter", "centimeters"),
    unit(&["mm"], "millimeter", "millimeters"),
    unit(&["μm", "µm"], "micrometer", "micrometers"),
    unit(&["nm"], "nanometer", "nanometers"),
    unit(&["ft"], "foot", "feet"),
    unit(&["yd", "yds"], "yard", "yards"),
    unit(&["mi"], "mile", "miles"),
    unit(&["kg", "kgs", "Kg"], "kilogram", "kilograms"),
    unit(&["g"], "gram", "grams"),
    unit(&["mg"], "milligram", "milligrams"),
    unit(&["lb", "lbs"], "pound", "pounds"),
    unit(&["oz"], "ounce", "ounces"),
    unit(&["l", "L"], "liter", "liters"),
    unit(&["ml", "mL"], "milliliter", "milliliters"),
    unit(&["gal"], "gallon", "gallons"),
    unit(&["ha"], "hectare", "hectares"),
    unit(&["hr", "hrs", "h"], "hour", "hours"),
    unit(&["min", "mins"], "minute", "minutes"),
    unit(&["sec", "secs", "s"], "second", "seconds"),
    unit(&["ms"], "millisecond", "milliseconds"),
    unit(&["°C", "ºC"], "degree celsius", "degrees celsius"),
    unit(&["°F", "ºF"], "degree fahrenheit", "degrees fahrenheit"),
    unit(&["°", "º"], "degree", "degrees"),
    unit(&["TB"], "terabyte", "terabytes"),
    unit(&["GB"], "gigabyte", "gigabytes"),
    unit(&["MB"], "megabyte", "megabytes"),
    unit(&["KB", "kB"], "kilobyte", "kilobytes"),
    unit(&["GiB"], "gibibyte", "gibibytes"),
    unit(&["MiB"], "mebibyte", "mebibytes"),
    unit(&["KiB"], "kibibyte", "kibibytes"),
    unit(&["Gbps", "Gb/s"], "gigabit per second", "gigabits per second"),
    unit(&["Mbps", "Mb/s"], "megabit per second", "megabits per second"),
    unit(&["GB/s"], "gigabyte per second", "gigabytes per second"),
    unit(&["MB/s"], "megabyte per second", "megabytes per second"),
    unit(&["Hz"], "hertz", "hertz"),
    unit(&["kHz", "KHz"], "kilohertz", "kilohertz"),
    unit(&["MHz"], "megahertz", "megahertz"),
    unit(&["GHz"], "gigahertz", "gigahertz"),
    unit(&["W"], "watt", "watts"),
    unit(&["kW"], "kilowatt", "kilowatts"),
    unit(&["MW"], "megawatt", "megawatts"),
    unit(&["kWh"], "kilowatt hour", "kilowatt hours"),
    unit(&["V"], "volt", "volts"),
    unit(&["mAh"], "milliamp hour", "milliamp hours"),
    unit(&["dB"], "decibel", "decibels"),
    unit(&["kcal"], "kilocalorie", "kilocalories"),
    unit(&["cal"], "calorie", "calories"),
    unit(&["rpm"], "revolution per minute", "revolutions per minute"),
    unit(&["bpm"], "beat per minute", "beats per minute"),
    unit(&["fps"], "frame per second", "frames per second"),
    unit(&["psi"], "pound per square inch", "pounds per square inch"),
    unit(&["px"], "pixel", "pixels"),
];

/// Reads numbers with units, then any remaining degree signs.
pub fn read(text: &str) -> String {
    let numbers = pattern!(
        r"([0-9]*\.?[0-9]+(?:-[0-9]*\.?[0-9]+)?)([ -]?)((?:[A-Za-zµμ]{1,4}/[a-z]{1,2}|[°º]?[A-Za-zµμ]{0,4}[²³23]?))(\. (?:[0-9]|\p{Ll}))?"
    );
    let text = rewrite(text, numbers, |found| {
        let (number, gap, symbol) = (found.text(1), found.text(2), found.text(3));
        let unit = UNITS.iter().find(|unit| unit.symbols.contains(&symbol))?;
        // "B-52s", "F-16s": the number belongs to the letter before it.
        let model = found.previous().is_some_and(|c| c == '-' || c.is_alphabetic());
        let apart =
            !model && !found.next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '²' | '³' | '\''));
        // "the 5 s in a row", "3 h" in a list of letters: a single letter counts as a unit only if it touches the number or
        // is metric.
        let letter = symbol.len() == 1 && !matches!(symbol, "m" | "g" | "l" | "L" | "V" | "W") && gap == " ";
        let name = if number == "1" || gap == "-" { unit.one } else { unit.many };
        let rest = found.text(4).trim_start_matches('.');
        (apart && !letter && found.is_whole_number()).then(|| format!("{} {name}{rest}", spoken(number)))
    });
    rewrite(&text, pattern!(r"[°º]([CF]\b)?"), |found| {
        let scale = match found.text(1) {
            "C" => " celsius",
            "F" => " fahrenheit",
            _ => "",
        };
        Some(format!(" degrees{scale} "))
    })
}

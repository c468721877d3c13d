//! The reference's names of symbols per language. They do not agree in number or case with the text around them.

const SYMBOLS: [char; 7] = ['&', '@', '%', '#', '$', '£', '°'];

/// Names in the order of [`SYMBOLS`].
const NAMES: &[(&str, [&str; 7])] = &[
    ("ar", ["و", "على", "في المئة", "رقم", "دولار", "جنيه", "درجة"]),
    ("cs", ["a", "na", "procento", "křížek", "dolar", "libra", "stupně"]),
    ("de", ["und", "at", "prozent", "raute", "dollar", "pfund", "grad"]),
    ("en", ["and", "at", "percent", "hash", "dollar", "pound", "degree"]),
    ("es", ["y", "arroba", "por ciento", "numeral", "dolar", "libra", "grados"]),
    ("fr", ["et", "arobase", "pour cent", "dièse", "dollar", "livre", "degrés"]),
    ("hi", ["और", "ऐट दी रेट", "प्रतिशत", "हैश", "डॉलर", "पाउंड", "डिग्री"]),
    ("hu", ["és", "kukac", "százalék", "kettőskereszt", "dollár", "font", "fok"]),
    ("it", ["e", "chiocciola", "per cento", "cancelletto", "dollaro", "sterlina", "gradi"]),
    ("nl", ["en", "bij", "procent", "hekje", "dollar", "pond", "graden"]),
    ("pl", ["i", "małpa", "procent", "krzyżyk", "dolar", "funt", "stopnie"]),
    ("pt", ["e", "arroba", "por cento", "cardinal", "dólar", "libra", "graus"]),
    ("ru", ["и", "собака", "процентов", "номер", "доллар", "фунт", "градус"]),
    ("tr", ["ve", "at", "yüzde", "diyez", "dolar", "sterlin", "derece"]),
];

/// Replaces symbols by their names with spaces around them; white space is collapsed afterwards.
pub(super) fn expand(mut text: String, language: &str) -> String {
    let Some((_, names)) = NAMES.iter().find(|(code, _)| *code == language) else { return text };
    for (symbol, name) in SYMBOLS.iter().zip(names) {
        text = text.replace(*symbol, &format!(" {name} "));
    }
    text
}

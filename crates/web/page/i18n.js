// Texts and numbers in the language of the page.

import en from "./text-en.js";
import fa from "./text-fa.js";

const TEXTS = { en, fa };
export const LANGUAGES = { en: "English", fa: "فارسی" };

let language = document.documentElement.lang in TEXTS ? document.documentElement.lang : "en";

export function currentLanguage() {
  return language;
}

export function setLanguage(next) {
  language = next;
  document.documentElement.lang = next;
  document.documentElement.dir = next === "fa" ? "rtl" : "ltr";
  try {
    localStorage.setItem("myxtts.language", next);
  } catch {
    // Without local storage, the choice lasts until the page is left.
  }
}

/** The text of a key, with `{name}` placeholders replaced. */
export function t(key, values = {}) {
  const text = TEXTS[language][key] ?? en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** A text that may have no translation; falls back to the program's own name. */
export function named(prefix, name) {
  const key = `${prefix}_${name}`;
  return TEXTS[language][key] ?? en[key] ?? name;
}

const locale = () => (language === "fa" ? "fa-IR" : "en-GB");

export function number(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return new Intl.NumberFormat(locale(), { maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value);
}

/** A number of any size in about four characters. */
export function compact(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) {
    return new Intl.NumberFormat(locale(), { notation: "scientific", maximumFractionDigits: 1 }).format(value);
  }
  return new Intl.NumberFormat(locale(), { maximumSignificantDigits: 4 }).format(value);
}

export function percent(share, digits = 0) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return new Intl.NumberFormat(locale(), { style: "percent", maximumFractionDigits: digits }).format(share);
}

export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 100) return t("seconds", { n: number(value, value < 10 ? 1 : 0) });
  const minutes = value / 60;
  if (minutes < 100) return t("minutes", { n: number(minutes, minutes < 10 ? 1 : 0) });
  return t("hours", { n: number(minutes / 60, 1) });
}

export function when(unixSeconds) {
  if (!unixSeconds) return "–";
  const date = new Date(unixSeconds * 1000);
  const today = new Date().toDateString() === date.toDateString();
  const options = today ? { hour: "2-digit", minute: "2-digit" } : { dateStyle: "medium", timeStyle: "short" };
  return new Intl.DateTimeFormat(locale(), options).format(date);
}

/** Name of a language code in the language of the page. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames([locale()], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}

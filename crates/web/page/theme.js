// Runs before the first paint, so that the page does not flash in the wrong theme or direction.
(() => {
  const kept = (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  };
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  root.dataset.theme = kept("myxtts.theme") ?? (dark ? "dark" : "light");
  root.lang = kept("myxtts.language") ?? (navigator.language?.startsWith("fa") ? "fa" : "en");
  root.dir = root.lang === "fa" ? "rtl" : "ltr";
})();

// Line and bar charts as SVG, with a cursor that shows the values. The pointer or the arrow keys move it: to assistive
// technology, a chart is a slider whose value is the text at the cursor.

import { h, s } from "./dom.js";
import { compact, number, t } from "./i18n.js";

/** Cursor positions by URL and chart title, because live charts are redrawn repeatedly. */
const cursors = new Map();

const KEYS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };

/** Adds keyboard navigation over `count` positions. `show` draws a position and returns its text; `hide` removes the cursor. */
function walkable(svg, title, label, count, show, hide) {
  const key = `${location.hash} ${title}`;
  const last = count - 1;
  const go = (at) => {
    svg.setAttribute("aria-valuenow", at + 1);
    svg.setAttribute("aria-valuetext", show(at));
  };
  const place = () => Math.min(cursors.get(key) ?? last, last);
  const attributes = { tabindex: 0, role: "slider", "aria-label": label, "aria-valuemin": 1, "aria-valuemax": count, "data-focus": `chart ${title}` };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  go(place());
  hide();
  svg.addEventListener("focus", () => svg.matches(":focus-visible") && go(place()));
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const by = KEYS[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(last, place() + by));
    // A cursor at the end stays at the end of a growing chart.
    if (next === last) cursors.delete(key);
    else cursors.set(key, next);
    go(next);
  });
}

/** Width in SVG units: smaller on small screens, so that text stays readable. */
const widthOf = (options) => (innerWidth < 700 ? 330 : options.wide ? 540 : 380);
const MARGIN = { left: 46, right: 10, top: 10, bottom: 24 };

/** About `count` round numbers that cover a range. */
function ticks(low, high, count = 4) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / count;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((x) => x * unit).find((x) => x >= raw);
  const found = [];
  for (let x = Math.ceil(low / step) * step; x <= high + step * 1e-9; x += step) found.push(Math.abs(x) < step * 1e-9 ? 0 : x);
  return found;
}

function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low <= high ? [low, high] : null;
}

/**
 * Lines over a common axis.
 * series: [{ name, x: [..], y: [..], dots }]; options: { title, height, wide, zero, max, formatX, formatY }
 */
export function lineChart(series, options = {}) {
  const WIDTH = widthOf(options);
  const { title, height = 200, zero = false, max, formatX = compact, formatY = compact } = options;
  const shown = series.filter((one) => one.y.some((value) => value !== null && Number.isFinite(value)));
  const box = h("figure", { class: "chart", style: null });
  box.style.margin = "0";
  const xs = extent(shown.flatMap((one) => one.x));
  const ys = extent(shown.flatMap((one) => one.y));
  if (!xs || !ys) {
    box.append(h("p", { class: "empty small" }, t("nothing_yet")));
    return box;
  }
  let [low, high] = ys;
  if (zero) low = Math.min(0, low);
  if (max !== undefined) high = Math.max(max, high);
  if (high === low) [low, high] = [low - (Math.abs(low) * 0.05 || 0.5), high + (Math.abs(high) * 0.05 || 0.5)];
  const pad = (high - low) * 0.06;
  if (!(zero && low === 0)) low -= pad;
  if (max === undefined) high += pad;
  const [first, last] = xs;
  const wide = WIDTH - MARGIN.left - MARGIN.right;
  const tall = height - MARGIN.top - MARGIN.bottom;
  const px = (x) => MARGIN.left + (last === first ? wide / 2 : ((x - first) / (last - first)) * wide);
  const py = (y) => MARGIN.top + tall - ((y - low) / (high - low)) * tall;
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}` });
  for (const y of ticks(low, high)) {
    svg.append(s("line", { class: "grid-line", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: py(y), y2: py(y) }));
    svg.append(s("text", { x: MARGIN.left - 8, y: py(y) + 4, "text-anchor": "end" }, formatY(y)));
  }
  for (const x of last === first ? [first] : ticks(first, last, WIDTH > 400 ? 6 : 4)) {
    svg.append(s("text", { x: px(x), y: height - 6, "text-anchor": "middle" }, formatX(x)));
  }
  shown.forEach((one) => {
    const colour = `c${((one.colour ?? series.indexOf(one)) % 6) + 1}`;
    let path = "";
    let isDown = false;
    let count = 0;
    one.x.forEach((x, i) => {
      const y = one.y[i];
      if (y === null || !Number.isFinite(y)) {
        isDown = false;
        return;
      }
      path += `${isDown ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`;
      isDown = true;
      count++;
    });
    svg.append(s("path", { class: `line ${colour}`, d: path }));
    if (one.dots || count === 1) {
      one.x.forEach((x, i) => {
        const y = one.y[i];
        if (y !== null && Number.isFinite(y)) svg.append(s("circle", { class: `line ${colour}`, cx: px(x), cy: py(y), r: 2.5 }));
      });
    }
  });
  const cursor = s("line", { class: "cursor", y1: MARGIN.top, y2: MARGIN.top + tall, visibility: "hidden" });
  svg.append(cursor);
  const tip = h("div", { class: "tip", hidden: true });
  // The series with the most points defines the cursor positions.
  const places = shown.reduce((most, one) => (one.x.length > most.length ? one.x : most), []);
  const nearest = (values, x) => values.reduce((best, value, i) => (Math.abs(value - x) < Math.abs(values[best] - x) ? i : best), 0);
  const show = (place) => {
    const at = places[place];
    const values = shown.map((one) => [one.name, formatY(one.y[nearest(one.x, at)])]);
    cursor.setAttribute("x1", px(at));
    cursor.setAttribute("x2", px(at));
    cursor.setAttribute("visibility", "visible");
    tip.hidden = false;
    tip.replaceChildren(h("div", { class: "muted" }, formatX(at)), ...values.map(([name, value]) => h("div", {}, name, " ", h("b", {}, value))));
    const share = (px(at) / WIDTH) * 100;
    tip.style.left = share < 60 ? `calc(${share}% + 10px)` : "auto";
    tip.style.right = share < 60 ? "auto" : `calc(${100 - share}% + 10px)`;
    return [formatX(at), ...values.map(([name, value]) => `${name} ${value}`)].join(", ");
  };
  const hide = () => {
    cursor.setAttribute("visibility", "hidden");
    tip.hidden = true;
  };
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    show(nearest(places, first + (((event.clientX - area.left) / area.width) * WIDTH - MARGIN.left) / wide * (last - first)));
  });
  svg.addEventListener("pointerleave", hide);
  walkable(svg, title, description(title, shown, formatY), places.length, show, hide);
  box.append(svg, tip);
  if (series.length > 1 || options.legend) {
    box.append(h("ul", { class: "legend" }, shown.map((one) =>
      h("li", {}, h("span", { class: `dot d${((one.colour ?? series.indexOf(one)) % 6) + 1}` }), one.name))));
  }
  return box;
}

/** Text description of a chart, for screen readers. */
function description(title, series, format) {
  const parts = series.map((one) => {
    const values = one.y.filter((value) => value !== null && Number.isFinite(value));
    return t("chart_series", { name: one.name, first: format(values[0]), last: format(values[values.length - 1]) });
  });
  return [title, ...parts].filter(Boolean).join(". ");
}

/** Bars of a histogram: [{ from, to, count }]. */
export function histogram(bins, options = {}) {
  const WIDTH = widthOf(options);
  const height = options.height ?? 180;
  const box = h("figure", { class: "chart" });
  box.style.margin = "0";
  const most = Math.max(...bins.map((bin) => bin.count), 1);
  const wide = WIDTH - MARGIN.left - MARGIN.right;
  const tall = height - MARGIN.top - MARGIN.bottom;
  const total = bins.reduce((sum, bin) => sum + bin.count, 0);
  const svg = s("svg", { viewBox: `0 0 ${WIDTH} ${height}` });
  for (const y of ticks(0, most, 3)) {
    const at = MARGIN.top + tall - (y / most) * tall;
    svg.append(s("line", { class: "grid-line", x1: MARGIN.left, x2: WIDTH - MARGIN.right, y1: at, y2: at }));
    svg.append(s("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, compact(y)));
  }
  const each = wide / Math.max(bins.length, 1);
  const every = Math.ceil(bins.length / 8);
  bins.forEach((bin, i) => {
    const size = (bin.count / most) * tall;
    svg.append(s("rect", { class: "bar-mark", x: MARGIN.left + i * each + each * 0.1, width: each * 0.8, y: MARGIN.top + tall - size, height: size, rx: 2 }));
    if (i % every === 0) svg.append(s("text", { x: MARGIN.left + i * each, y: height - 6, "text-anchor": "middle" }, compact(bin.from)));
  });
  const tip = h("div", { class: "tip", hidden: true });
  const marks = svg.querySelectorAll(".bar-mark");
  const hide = () => {
    tip.hidden = true;
    marks.forEach((mark) => mark.classList.remove("chosen"));
  };
  const show = (i) => {
    const { from, to, count } = bins[i];
    hide();
    marks[i].classList.add("chosen");
    tip.hidden = false;
    tip.replaceChildren(h("div", { class: "muted" }, `${compact(from)}–${compact(to)}`), h("b", {}, number(count)));
    const share = ((MARGIN.left + (i + 0.5) * each) / WIDTH) * 100;
    tip.style.left = share < 60 ? `calc(${share}% + 10px)` : "auto";
    tip.style.right = share < 60 ? "auto" : `calc(${100 - share}% + 10px)`;
    return `${compact(from)}–${compact(to)}: ${number(count)}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const area = svg.getBoundingClientRect();
    const i = Math.floor((((event.clientX - area.left) / area.width) * WIDTH - MARGIN.left) / each);
    if (i >= 0 && i < bins.length) show(i);
  });
  svg.addEventListener("pointerleave", hide);
  if (bins.length) walkable(svg, options.title, `${options.title}: ${number(total)}`, bins.length, show, hide);
  box.append(svg, tip);
  return box;
}

/** Horizontal bars of fractions: [[name, value, label]]. */
export function shares(rows) {
  const most = Math.max(...rows.map(([, value]) => value), 1e-9);
  return h("div", { class: "hbar" }, rows.map(([name, value, text]) => {
    const bar = h("span");
    bar.style.inlineSize = `${(value / most) * 100}%`;
    return [h("span", { dir: "auto" }, name), h("div", { class: "progress" }, bar), h("span", { class: "muted nowrap" }, text)];
  }));
}

"use strict";
// Line charts: one for each metric, with a line for each run. Text from the user's disk is only
// inserted as text, through textContent or setAttribute.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = { width: 340, height: 190, left: 46, right: 10, top: 10, bottom: 26 };
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "7 2 1 2"];

/** Create an element with attributes and children; strings become text. */
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "path", "line", "text", "circle", "g"].includes(name);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** Format a number briefly. */
function format(value, share = false) {
  if (share) return (100 * value).toFixed(value < 0.1 && value > 0 ? 1 : 0) + "%";
  const size = Math.abs(value);
  if (size >= 1e5 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e").replaceAll("-", "−");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** Format a tick label with as many digits as the distance of ticks needs. */
function formatTick(value, step, share) {
  if (share) {
    const whole = Math.abs(100 * step - Math.round(100 * step)) < 1e-6;
    return (100 * value).toFixed(whole ? 0 : 1) + "%";
  }
  const text = format(value);
  if (text.includes("e")) return text;
  let digits = 0;
  while (digits < 6 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits++;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
}

/** Return about `count` round numbers between two others, at least `least` apart. */
function ticks(low, high, count, least = 0) {
  const raw = Math.max((high - low) / count, least);
  const power = 10 ** Math.floor(Math.log10(raw));
  const steps = least ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const step = steps.map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

/** Map data to pixels, with a margin above and below. */
function scales(chart) {
  const lines = [...chart.lines, ...chart.dots].filter(Boolean);
  const xs = lines.flatMap((line) => line[0]), ys = lines.flatMap((line) => line[1]);
  let [left, right, low, high] = [0, Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  if (right <= left) right = left + 1;
  const room = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 0.5;
  const floor = low >= 0 ? 0 : -Infinity; // no negative ticks for values that are never negative
  low = Math.max(low - room, floor);
  high += room;
  const width = SIZE.width - SIZE.left - SIZE.right, height = SIZE.height - SIZE.top - SIZE.bottom;
  return {
    left, right, low, high,
    x: (v) => SIZE.left + ((v - left) / (right - left)) * width,
    y: (v) => SIZE.top + (1 - (v - low) / (high - low)) * height,
    back: (px) => left + ((px - SIZE.left) / width) * (right - left),
  };
}

function axes(scale, share, axis) {
  const group = make("g", { class: "axes" });
  const bottom = SIZE.height - SIZE.bottom;
  const levels = ticks(scale.low, scale.high, 4);
  for (const value of levels) {
    const y = scale.y(value);
    group.append(make("line", { x1: SIZE.left, x2: SIZE.width - SIZE.right, y1: y, y2: y }));
    group.append(make("text", { x: SIZE.left - 7, y: y + 4, "text-anchor": "end" }, formatTick(value, levels[1] - levels[0], share)));
  }
  // Epochs and steps are whole numbers. The name of the axis is its label at zero.
  for (const value of ticks(scale.left, scale.right, 5, 1)) {
    const x = scale.x(value);
    group.append(make("text", { x, y: bottom + 18, "text-anchor": "middle" }, value ? format(value) : axis));
  }
  return group;
}

function path(line, scale) {
  return line[0].map((x, i) => `${i ? "L" : "M"}${scale.x(x).toFixed(1)} ${scale.y(line[1][i]).toFixed(1)}`).join("");
}

/** Return the index of the point of a line that is nearest to x. */
function nearestPoint(line, x) {
  let best = 0;
  line[0].forEach((value, i) => {
    if (Math.abs(value - x) < Math.abs(line[0][best] - x)) best = i;
  });
  return best;
}

/** Describe a chart for people who do not see it. */
function summary(chart, runs, axis) {
  const each = chart.lines.map((line, run) => line &&
    `${runs[run]}: from ${format(line[1][0], chart.share)} to ${format(line[1].at(-1), chart.share)}`);
  return `${chart.title} by ${axis}. ${each.filter(Boolean).join("; ")}`;
}

/** Draw one chart; the pointer and the arrow keys read off its values. */
function drawChart(chart, runs, axis) {
  const scale = scales(chart);
  const svg = make("svg", {
    viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", tabindex: "0",
    "aria-label": summary(chart, runs, axis),
  });
  svg.append(axes(scale, chart.share, axis));
  chart.dots.forEach((dots, run) => dots?.[0].forEach((x, i) => {
    svg.append(make("circle", { class: `step c${run % 8}`, cx: scale.x(x).toFixed(1), cy: scale.y(dots[1][i]).toFixed(1), r: 2 }));
  }));
  chart.lines.forEach((line, run) => {
    if (!line) return;
    const attributes = { class: `line c${run % 8}`, d: path(line, scale) };
    if (runs.length > 1) attributes["stroke-dasharray"] = DASHES[run % 8];
    svg.append(make("path", attributes));
    if (line[0].length === 1) {
      svg.append(make("circle", { class: `dot c${run % 8}`, cx: scale.x(line[0][0]), cy: scale.y(line[1][0]), r: 3.5 }));
    }
  });
  const cursor = make("g", { class: "cursor" });
  svg.append(cursor);
  const last = chart.lines.map((line, run) => line &&
    (runs.length > 1 ? `${runs[run]} ` : "") + format(line[1].at(-1), chart.share)).filter(Boolean).join(" · ");
  const reading = make("output", {}, last);
  const longest = chart.lines.filter(Boolean).reduce((a, b) => (b[0].length > a[0].length ? b : a));
  let at = longest[0].length - 1;

  function read(x) {
    cursor.replaceChildren(make("line", { x1: scale.x(x), x2: scale.x(x), y1: SIZE.top, y2: SIZE.height - SIZE.bottom }));
    const parts = [`${axis} ${format(x)}`];
    chart.lines.forEach((line, run) => {
      if (!line) return;
      const i = nearestPoint(line, x);
      cursor.append(make("circle", { class: `dot c${run % 8}`, cx: scale.x(line[0][i]), cy: scale.y(line[1][i]), r: 3.5 }));
      parts.push((runs.length > 1 ? `${runs[run]} ` : "") + format(line[1][i], chart.share));
    });
    reading.textContent = parts.join(" · ");
  }
  function leave() {
    cursor.replaceChildren();
    reading.textContent = last;
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = scale.back(((event.clientX - box.left) / box.width) * SIZE.width);
    at = nearestPoint(longest, x);
    read(longest[0][at]);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: longest[0].length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    at = Math.min(Math.max(moves[event.key], 0), longest[0].length - 1);
    read(longest[0][at]);
  });
  return make("figure", { class: "chart" },
    make("figcaption", {}, make("b", {}, chart.title), reading), svg, make("p", {}, chart.about));
}

/** Create the legend: the lines of several runs, and single steps if any are drawn. */
function drawLegend(data) {
  const entry = (name, ...marks) =>
    make("li", {}, make("svg", { width: 34, height: 12, "aria-hidden": "true" }, ...marks), name);
  const runs = data.runs.map((name, run) =>
    entry(name, make("path", { class: `line c${run % 8}`, d: "M1 6H33", "stroke-dasharray": DASHES[run % 8] })));
  const dots = [4, 12, 20, 28].map((x, i) => make("circle", { class: "step", cx: x, cy: [8, 4, 7, 3][i], r: 2 }));
  return [
    ...(runs.length > 1 ? runs : []),
    ...(data.charts.some((chart) => chart.dots.some(Boolean)) ? [entry("single steps; the line is their running mean", ...dots)] : []),
  ];
}

/** Draw all charts, with one axis for all: those that matter, and the others to be unfolded. */
function drawCharts(data) {
  if (!document.getElementById("charts")) return;
  document.getElementById("runs").replaceChildren(...drawLegend(data));
  for (const id of ["main-charts", "other-charts"]) {
    const chosen = data.charts.filter((chart) => chart.matters === (id === "main-charts"));
    document.getElementById(id).replaceChildren(...chosen.map((chart) => drawChart(chart, data.runs, data.x)));
  }
}

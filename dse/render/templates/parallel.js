// Parallel coordinates in SVG, the axes lying one below the other so that names fit on a phone.
// Plotly's own need WebGL and code made from strings, which this page's policy forbids.
function parallelAxes(box, columns, actions) {
"use strict";
const SVG = "http://www.w3.org/2000/svg";
const STEP = 58, TOP = 34, SIDE = 16, LETTER = 6.6;
const node = (tag, attributes, parent) => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
};

// Few values stand evenly, in order; many lie on a line, logarithmic where they span decades.
const axes = columns.map((column) => {
  const known = column.values.filter((value) => value !== null);
  const levels = [...new Set(known)].sort((a, b) => (column.number ? a - b : a < b ? -1 : 1));
  if (!column.number || levels.length <= 8) {
    const place = new Map(levels.map((level, i) => [level, levels.length > 1 ? i / (levels.length - 1) : 0.5]));
    return { column, ticks: levels.map((level) => [place.get(level), actions.text(column, level)]), at: (row) => place.get(column.values[row]) };
  }
  const [low, high] = [levels[0], levels[levels.length - 1]];
  const log = low > 0 && high / low > 8;
  const scale = log ? Math.log : (value) => value;
  const fraction = (value) => (scale(value) - scale(low)) / (scale(high) - scale(low));
  const inner = [];
  if (log) for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) inner.push(power, 2 * power, 5 * power);
  else {
    const unit = 10 ** Math.floor(Math.log10((high - low) / 3));
    const step = [1, 2, 5, 10].map((times) => times * unit).find((wide) => (high - low) / wide <= 8);
    for (let value = Math.ceil(low / step) * step; value < high; value += step) inner.push(Number(value.toPrecision(6)));
  }
  const ticks = [low, high, ...inner.filter((value) => value > low && value < high)];
  const at = (row) => (column.values[row] === null ? undefined : fraction(column.values[row]));
  return { column, ticks: ticks.map((value) => [fraction(value), actions.text(column, Number.isInteger(value) ? value : Number(value.toPrecision(3)))]), at };
});
const brushes = new Map();
let drawn = null;

const inside = (row, but) => axes.every((axis) => {
  const range = brushes.get(axis);
  if (!range || axis === but) return true;
  const t = axis.at(row);
  return t !== undefined && t >= range[0] && t <= range[1];
});

function draw(rows, picked) {
  drawn = [rows, picked];
  const width = box.clientWidth;
  const height = TOP + STEP * (axes.length - 1) + 34;
  const x = (t) => SIDE + t * (width - 2 * SIDE);
  const y = (i) => TOP + i * STEP;
  const svg = node("svg", { viewBox: "0 0 " + width + " " + height, width, height, role: "img", "aria-label": "Parallel coordinates of the front: one line a design" });
  const path = (row) => axes.map((axis, i) => {
    const t = axis.at(row);
    return t === undefined ? "" : (i && axes[i - 1].at(row) !== undefined ? "L" : "M") + x(t).toFixed(1) + " " + y(i);
  }).join("");
  const groups = ["away", "lines", "named"].map((name) => node("g", { class: name }, svg));
  const opacity = Math.max(0.12, Math.min(0.8, 40 / Math.max(rows.length, 1)));
  for (const row of rows) {
    const mine = inside(row);
    const named = mine && (actions.isChosen(row) || row === picked);
    const line = node("path", { d: path(row), "data-row": row }, groups[mine ? (named ? 2 : 1) : 0]);
    if (!mine) continue;
    line.style.stroke = actions.colour(row);
    if (!named) line.style.opacity = opacity;
    if (row === picked) line.classList.add("picked");
    node("title", {}, line).textContent = actions.title(row);
    line.addEventListener("click", () => actions.pick(row));
  }
  axes.forEach((axis, i) => drawAxis(svg, axis, y(i), x, width));
  box.replaceChildren(svg);
}

function drawAxis(svg, axis, y, x, width) {
  const group = node("g", { class: "axis", "data-key": axis.column.key }, svg);
  node("line", { x1: x(0), x2: x(1), y1: y, y2: y }, group);
  node("text", { x: 2, y: y - 12, class: "name" }, group).textContent = axis.column.axis || axis.column.label;
  const taken = [];
  for (const [t, text] of axis.ticks) {
    node("line", { x1: x(t), x2: x(t), y1: y - 4, y2: y + 4 }, group);
    const half = (text.length * LETTER) / 2 + 4;
    const centre = Math.min(Math.max(x(t), half), width - half);
    if (taken.some(([low, high]) => centre - half < high && centre + half > low)) continue;
    taken.push([centre - half, centre + half]);
    node("text", { x: centre, y: y + 17, "text-anchor": "middle" }, group).textContent = text;
  }
  const range = brushes.get(axis);
  const mark = node("rect", { class: "brush", y: y - 9, height: 18, x: 0, width: 0 }, group);
  const show = (a, b) => { mark.setAttribute("x", x(a)); mark.setAttribute("width", Math.max(0, x(b) - x(a))); };
  if (range) show(Math.max(0, range[0]), Math.min(1, range[1]));
  const hit = node("rect", { class: "hit", x: 0, width, y: y - 11, height: 22 }, group);
  node("title", {}, hit).textContent = "Drag along the axis to keep a range; click to free it";
  const place = (event) => Math.min(1, Math.max(0, (event.clientX - svg.getBoundingClientRect().left - SIDE) / (width - 2 * SIDE)));
  let start = null;
  hit.addEventListener("pointerdown", (event) => { start = place(event); hit.setPointerCapture(event.pointerId); });
  hit.addEventListener("pointermove", (event) => { if (start !== null) show(Math.min(start, place(event)), Math.max(start, place(event))); });
  hit.addEventListener("pointercancel", () => { start = null; draw(...drawn); });
  hit.addEventListener("pointerup", (event) => {
    const ends = [start, place(event)].sort((a, b) => a - b);
    start = null;
    // Half a pixel of slack keeps a value that the range just reaches; a click keeps all.
    if ((ends[1] - ends[0]) * (width - 2 * SIDE) < 5) brushes.delete(axis);
    else brushes.set(axis, [ends[0] - 1e-9 - 0.5 / width, ends[1] + 1e-9 + 0.5 / width]);
    actions.brushed();
  });
}

return { draw, inside, clear: () => brushes.clear(), any: () => brushes.size > 0 };
}

(() => {
"use strict";
const data = JSON.parse(document.getElementById("page-data").textContent).front;

const columns = data.columns.map((column) => ({
  ...column,
  values: column.levels ? column.codes.map((code) => column.levels[code]) : column.values,
}));
const by = Object.fromEntries(columns.map((column) => [column.key, column]));
const numeric = columns.filter((column) => column.number && !column.axes_only);
const chips = by.chip.levels;
const all = data.point.map((_, row) => row);
const state = { x: data.x, y: data.y, off: {}, ends: {}, offered: all, rows: all, sort: null, descending: false, picked: null, kept: null };

const number = (value) => {
  if (value === null) return "–";
  if (Math.abs(value) >= 1e4) return Math.round(value).toLocaleString("en-US");
  return value.toLocaleString("en-US", { maximumSignificantDigits: 5 });
};
const show = (column, row) => (column.number ? number(column.values[row]) : column.values[row]);
const factColumns = [...data.objectives.map((key) => by[key]), ...columns.filter((column) => !data.objectives.includes(column.key) && !column.axes_only)];
const facts = (row) => factColumns.map((column) => [column.label, show(column, row)]).filter((fact) => fact[1] !== "" && fact[1] !== "–");
const isChosen = (row) => Boolean(by.names && by.names.values[row]);

// Every k-th point of the front's order; chosen points always stay.
function thinned(rows, most) {
  if (rows.length <= most) return rows;
  const step = rows.length / most;
  const kept = new Set(Array.from({ length: most }, (_, i) => rows[Math.floor(i * step)]));
  return rows.filter((row) => kept.has(row) || isChosen(row));
}

function marks(rows, x, y, size, hover) {
  return chips.map((chip, i) => {
    const mine = rows.filter((row) => by.chip.values[row] === chip);
    return {
      type: "scatter", mode: "markers", name: plain(chip), customdata: mine,
      x: mine.map((row) => by[x].values[row]), y: mine.map((row) => by[y].values[row]),
      marker: { color: data.palette[i % data.palette.length], symbol: data.symbols[i % data.symbols.length], size, opacity: 0.9, line: { color: style("--quiet"), width: 0.6 } },
      hoverinfo: "text", hovertext: mine.map(hover), showlegend: mine.length > 0,
    };
  });
}

function rings(rows, x, y, size) {
  const found = rows.filter(isChosen);
  return {
    type: "scatter", mode: "markers", customdata: found,
    x: found.map((row) => by[x].values[row]), y: found.map((row) => by[y].values[row]),
    marker: { symbol: "circle-open", size, color: style("--ink"), line: { width: 2 } },
    hoverinfo: "skip", showlegend: false, cliponaxis: false,
  };
}

// The chosen points' names.
function names(plot, rows, x, y, size) {
  const place = (key, row) => (isLog(by[key]) ? Math.log10(by[key].values[row]) : by[key].values[row]);
  const [wide, high] = [plot.clientWidth - 90, plot.clientHeight - 90];
  const known = rows.filter((row) => by[x].values[row] !== null && by[y].values[row] !== null);
  const pixel = (key, length) => {
    const values = known.map((row) => place(key, row));
    const low = values.reduce((a, b) => Math.min(a, b));
    const span = values.reduce((a, b) => Math.max(a, b)) - low;
    return (row) => (span ? (0.05 + (0.9 * (place(key, row) - low)) / span) * length : length / 2);
  };
  if (!known.length) return [];
  const [across, up] = [pixel(x, wide), pixel(y, high)];
  const chosen = known.filter(isChosen).map((row) => ({ h: across(row), v: up(row), x: place(x, row), y: place(y, row), text: by.names.values[row] }));
  return named(chosen, known.map((row) => [across(row), up(row)]), wide, high, size, 13);
}

const isLog = (column) => Boolean(column.log) && spread(column) > 3;
const scale = (column, width) => ({
  title: { text: wrap(column.axis, width) },
  ...(spread(column) === 1 && { range: [0, 2 * column.values.find((value) => value > 0) || 1] }),
  ...(isLog(column) && { type: "log", minor: { ticks: "outside", ticklen: 3 }, dtick: spread(column) > 100 ? 1 : "D2", tickformat: "~g" }),
});
const spread = (column) => {
  const values = column.values.filter((value) => value > 0);
  return values.length ? values.reduce((a, b) => Math.max(a, b)) / values.reduce((a, b) => Math.min(a, b)) : 1;
};


function drawFront() {
  const shown = thinned(state.rows, data.drawn_points);
  const hover = (row) => {
    const known = narrow() ? facts(row).filter(([name]) => name !== "shape").slice(0, 10) : facts(row);
    const lines = known.map(([name, value]) => plain(name) + ": " + plain(value));
    return "<b>point " + data.point[row] + "</b><br>" + lines.join("<br>");
  };
  const traces = marks(shown, state.x, state.y, shown.length > 400 ? 7 : 9, hover);
  traces.push(rings(shown, state.x, state.y, 20));
  if (state.picked !== null) {
    traces.push({
      type: "scatter", mode: "markers", x: [by[state.x].values[state.picked]], y: [by[state.y].values[state.picked]],
      marker: { symbol: "circle-open", size: 28, color: data.palette[1], line: { width: 3 } },
      hoverinfo: "skip", showlegend: true, name: "selected: point " + data.point[state.picked],
    });
  }
  react(element("front-plot"), traces, {
    xaxis: scale(by[state.x], narrow() ? 36 : 90), yaxis: scale(by[state.y], narrow() ? 34 : 52), hovermode: "closest",
    annotations: names(element("front-plot"), shown, state.x, state.y, 20),
  });
  const count = state.rows.length;
  let text = count ? count.toLocaleString("en-US") + " of " + data.rows.toLocaleString("en-US") + " points match the filter." : "No point matches the filter.";
  if (data.rows < data.total) text += " This page holds " + data.rows.toLocaleString("en-US") + " of the front's " + data.total.toLocaleString("en-US") + " points, evenly along its order; front.csv has all.";
  if (shown.length < count) text += " The pictures show " + shown.length.toLocaleString("en-US") + " of them, evenly along the front's order.";
  for (const place of document.querySelectorAll(".count")) place.textContent = text;
}

function drawPairs() {
  const box = element("pair-plots");
  if (!box) return;
  const rows = thinned(state.rows, Math.round(data.drawn_points / 3));
  const pairs = data.objectives.flatMap((y, i) => data.objectives.slice(0, i).map((x) => [x, y]));
  // All boxes come before the first plot, which takes the width that they leave it.
  while (box.children.length < pairs.length) {
    const made = make("div", undefined, box);
    made.className = "plot";
    made.setAttribute("role", "img");
  }
  pairs.forEach(([x, y], k) => {
    const plot = box.children[k];
    plot.setAttribute("aria-label", by[x].axis + " against " + by[y].axis);
    const hover = (row) => ["<b>point " + data.point[row] + "</b>", plain(by.chip.values[row]), plain(by[x].label) + ": " + show(by[x], row), plain(by[y].label) + ": " + show(by[y], row)].join("<br>");
    const traces = marks(rows, x, y, rows.length > 200 ? 5 : 7, hover);
    traces.push(rings(rows, x, y, 15));
    for (const trace of traces) trace.showlegend = false;
    const bare = (column) => ({ ...column, axis: column.axis.replace(/, (lower|higher) is better$/, "") });
    react(plot, traces, { xaxis: scale(bare(by[x]), 44), yaxis: scale(bare(by[y]), 34), hovermode: "closest", annotations: names(plot, rows, x, y, 15) });
    if (!plot.dataset.live) {
      plot.dataset.live = "1";
      plot.on("plotly_click", clicked);
    }
  });
}

const clicked = (event) => {
  const row = event.points[0].customdata;
  if (Number.isInteger(row)) pick(row);
};

const tableColumns = ["names", ...data.objectives, "model", "chip", "split", "weights", "kv", "concurrency", "shape",
  "ttft_s", "tpot_s", "output_tokens_per_s_per_chip", "total_parameters", "active_parameters", "bottleneck"]
  .filter((key, i, keys) => by[key] && keys.indexOf(key) === i).map((key) => by[key]);
const pointColumn = { key: "point", label: "point", number: true, values: data.point };

function sorted() {
  if (!state.sort) return state.rows;
  const { values, number: isNumber } = state.sort;
  const sign = state.descending ? -1 : 1;
  const order = (a, b) => {
    if (values[a] === null || values[b] === null) return (values[a] === null) - (values[b] === null);
    return sign * (isNumber ? values[a] - values[b] : values[a].localeCompare(values[b]));
  };
  return [...state.rows].sort((a, b) => order(a, b) || a - b);
}

const parallel = element("parallel-plot") && parallelAxes(element("parallel-plot"), data.parallel.map((key) => by[key]), {
  text: (column, value) => (column.number ? number(value) : value),
  colour: (row) => data.palette[by.chip.levels.indexOf(by.chip.values[row]) % data.palette.length],
  title: (row) => ["point " + data.point[row], ...facts(row).slice(0, 8).map((fact) => fact.join(": "))].join("\n"),
  isChosen: (row) => isChosen(row),
  pick: (row) => pick(row),
  brushed: () => filter(),
});
// Lines outside a brushed range stay, pale; those that the filters took away are gone.
function drawParallel() {
  if (parallel) parallel.draw(thinned(state.offered, data.drawn_lines), state.picked);
}

// Paper has room for the columns that tell one design from another, and for the first rows.
const onPaper = () => document.documentElement.classList.contains("paper");
const printed = ["names", ...data.objectives, "model", "chip", "split", "weights", "concurrency", "shape"];

function drawTable() {
  const drawn = onPaper() ? tableColumns.filter((column) => printed.includes(column.key)) : tableColumns;
  const head = document.querySelector("#rows thead tr");
  head.replaceChildren();
  for (const column of [pointColumn, ...drawn]) {
    const cell = make("th", undefined, head);
    const on = state.sort && state.sort.key === column.key;
    if (column.number) cell.className = "n";
    cell.setAttribute("aria-sort", on ? (state.descending ? "descending" : "ascending") : "none");
    const button = make("button", column.label + (on ? (state.descending ? " ▼" : " ▲") : ""), cell);
    button.type = "button";
    button.dataset.key = column.key;
    button.addEventListener("click", () => {
      state.descending = Boolean(on) && !state.descending;
      state.sort = column;
      drawTable();
    });
  }
  const body = document.querySelector("#rows tbody");
  body.replaceChildren();
  const rows = sorted();
  const shown = rows.slice(0, onPaper() ? data.printed_rows : data.table_rows);
  const hidden = state.picked !== null && !shown.includes(state.picked);
  for (const row of hidden ? [state.picked, ...shown] : shown) {
    const line = make("tr", undefined, body);
    line.dataset.point = data.point[row];
    if (row === state.picked) line.className = "picked";
    const first = make("td", undefined, line);
    first.className = "n";
    make("button", data.point[row], first).type = "button";
    for (const column of drawn) {
      const cell = make("td", show(column, row), line);
      if (column.number) cell.className = "n";
    }
    line.addEventListener("click", () => pick(row));
  }
  element("table-note").textContent = "Click a heading to sort, a row to select it in the picture. Shape: layers × hidden size, query heads/KV heads. Split: replicas × (TP tensor, PP pipeline, DP attention data, EP expert parallel). "
    + (shown.length < rows.length ? "The first " + shown.length + " of " + rows.length.toLocaleString("en-US") + " rows are shown; front.csv has all " + data.total.toLocaleString("en-US") + "." : "All of it is in front.csv too.");
}

function drawSelected() {
  const box = element("selected");
  box.hidden = state.picked === null;
  if (box.hidden) return;
  const rows = [state.kept, state.picked].filter((row, k) => k || (row !== null && row !== state.picked));
  box.querySelector("h3").textContent = rows.map((row) => "Point " + data.point[row]).join(" beside ");
  const list = box.querySelector("dl");
  list.replaceChildren();
  for (const column of factColumns) {
    const values = rows.map((row) => show(column, row));
    if (values.every((value) => value === "" || value === "–")) continue;
    const line = make("div", undefined, list);
    make("dt", column.label, line);
    for (const value of values) make("dd", value, line);
    if (new Set(values).size > 1) line.className = "differs";
  }
  box.querySelector("code").textContent = "dse estimate --detail " + data.study + " " + data.point[state.picked];
}

function pick(row) {
  state.picked = row;
  remember();
  drawFront();
  drawParallel();
  drawTable();
  drawSelected();
  const line = document.querySelector("#rows tr.picked");
  const box = line.closest(".scroll");
  box.scrollTop = line.offsetTop - box.clientHeight / 2;
}

actions.pick = (point) => {
  const row = data.point.indexOf(point);
  if (row < 0) return;
  pick(row);
  element("selected").scrollIntoView({ block: "center" });
};

const upward = (column) => column.axis.includes("higher is better");
const offered = (row) => Object.entries(state.off).every(([key, off]) => !off.has(by[key].values[row])) && Object.entries(state.ends).every((end) => within(end, row));
const within = ([key, end], row) => by[key].values[row] !== null && (upward(by[key]) ? by[key].values[row] >= end : by[key].values[row] <= end);

// What is chosen stands in the address, so that a view can be sent; only known values are read back.
function remember() {
  const found = new URLSearchParams({ x: state.x, y: state.y });
  for (const [key, off] of Object.entries(state.off)) for (const level of off) found.append("off." + key, level);
  for (const [key, end] of Object.entries(state.ends)) found.set("end." + key, end);
  if (state.picked !== null) found.set("point", data.point[state.picked]);
  if (state.kept !== null) found.set("beside", data.point[state.kept]);
  history.replaceState(null, "", "#" + found);
}
function recall() {
  const found = new URLSearchParams(location.hash.slice(1));
  for (const key of ["x", "y"]) if (numeric.includes(by[found.get(key)])) state[key] = found.get(key);
  for (const [name, value] of found) {
    const [what, key] = [name.split(".", 1)[0], name.slice(name.indexOf(".") + 1)];
    if (what === "off" && state.off[key] && by[key].levels.includes(value)) state.off[key].add(value);
    if (what === "end" && data.objectives.includes(key) && Number.isFinite(Number(value))) state.ends[key] = Number(value);
  }
  const row = (name) => (found.has(name) ? data.point.indexOf(Number(found.get(name))) : -1);
  if (row("point") >= 0) state.picked = row("point");
  if (row("beside") >= 0) state.kept = row("beside");
}

function filter() {
  remember();
  state.offered = all.filter(offered);
  state.rows = parallel ? state.offered.filter((row) => parallel.inside(row)) : state.offered;
  drawFront();
  drawParallel();
  drawPairs();
  drawTable();
}

function buildControls() {
  for (const [id, key] of [["axis-x", "x"], ["axis-y", "y"]]) {
    const select = element(id);
    for (const column of numeric) {
      const option = make("option", column.label, select);
      option.value = column.key;
    }
    select.addEventListener("change", () => { state[key] = select.value; remember(); drawFront(); });
  }
  for (const column of data.objectives.map((key) => by[key])) {
    const values = [...new Set(column.values.filter((value) => value !== null))].sort((a, b) => (upward(column) ? a - b : b - a));
    if (values.length < 2) continue;
    const caption = make("label", column.label + (upward(column) ? " at least " : " at most "), element("limits"));
    const said = make("output", undefined, caption);
    const slider = make("input", undefined, caption);
    Object.assign(slider, { type: "range", min: 0, max: values.length - 1, step: 1 });
    slider.dataset.key = column.key;
    const tell = () => { said.textContent = number(values[slider.value]) + " "; };
    slider.show = () => {
      const end = state.ends[column.key];
      slider.value = end === undefined ? 0 : Math.max(0, values.findLastIndex((value) => (upward(column) ? value <= end : value >= end)));
      tell();
    };
    slider.addEventListener("input", tell);
    slider.addEventListener("change", () => {
      if (Number(slider.value)) state.ends[column.key] = values[slider.value];
      else delete state.ends[column.key];
      filter();
    });
  }
  for (const key of ["decision", "chip", "weights", "kv", "kind"]) {
    if (!by[key] || by[key].levels.length < 2) continue;
    state.off[key] = new Set();
    const set = make("fieldset", undefined, element("filters"));
    make("legend", by[key].label, set);
    for (const level of by[key].levels) {
      const caption = make("label", undefined, set);
      const box = make("input", undefined, caption);
      box.type = "checkbox";
      box.dataset.key = key;
      box.value = level;
      caption.append(" " + level);
      box.addEventListener("change", () => { state.off[key][box.checked ? "delete" : "add"](level); filter(); });
    }
  }
  for (const button of document.querySelectorAll(".reset")) {
    button.addEventListener("click", () => {
      for (const off of Object.values(state.off)) off.clear();
      state.ends = {};
      if (parallel) parallel.clear();
      showControls();
      filter();
    });
  }
  element("keep").addEventListener("click", () => { state.kept = state.picked; remember(); drawSelected(); });
}

// The controls as the state has them.
function showControls() {
  for (const key of ["x", "y"]) element("axis-" + key).value = state[key];
  for (const box of document.querySelectorAll("#filters input")) box.checked = !state.off[box.dataset.key].has(box.value);
  for (const slider of document.querySelectorAll("#limits input")) slider.show();
}

function drawAll() {
  drawFront();
  drawParallel();
  drawPairs();
}

const wholeTable = () => tsv([["point", ...tableColumns.map((column) => column.label)],
  ...sorted().map((row) => [data.point[row], ...tableColumns.map((column) => column.values[row] ?? "")])]);

later.push(() => {
  buildControls();
  if (location.hash.includes("=")) recall();
  showControls();
  state.offered = all.filter(offered);
  state.rows = state.offered;
  drawTable();
  drawSelected();
  copyButton(element("rows"), wholeTable);
  drawAll();
  draws.push(() => { drawTable(); drawAll(); });
  element("front-plot").on("plotly_click", clicked);
});
})();

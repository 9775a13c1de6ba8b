(() => {
"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
const data = JSON.parse(document.getElementById("rows-data").textContent);
const text = (name, row) => data.texts[name].levels[data.texts[name].codes[row]];
const all = data.value.map((_, row) => row);
const state = { shown: 0, coloured: "chip" };
const narrow = () => window.innerWidth < 560;
const BAND = 0.2;
const LOADS = { concurrency: "requests in flight", prompt_tokens: "prompt tokens", output_tokens: "output tokens", n_chips: "chips" };
const percent = (value) => (100 * value).toFixed(1) + "%";
const unit = (metric) => page.units[metric];
const quantity = (metric, value) => Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 }) + " " + unit(metric);
const named = (score) => page.names[score.metric] + ", " + score.serving;
const log = { type: "log", tickformat: "~g", exponentformat: "none", minor: { ticks: "outside", ticklen: 3 } };
const decades = (low, high, room) => (Math.log10(high / low) > room ? 1 : "D2");

for (const table of document.querySelectorAll("table")) copyButton(table, () => tableText(table));

function hover(row) {
  const metric = text("metric", row);
  const lines = [
    "<b>" + plain(text("model", row)) + " on " + data.n_chips[row] + " x " + plain(text("chip", row)) + "</b>",
    "measured " + quantity(metric, data.value[row]) + ", predicted " + quantity(metric, data.predicted[row]),
    "80% interval " + quantity(metric, data.predicted_low[row]) + " to " + quantity(metric, data.predicted_high[row]),
    "off by " + percent(data.predicted[row] / data.value[row] - 1),
    plain([text("split", row), text("weight_dtype", row) && "weights " + text("weight_dtype", row), text("kv_dtype", row) && "KV " + text("kv_dtype", row)].filter(Boolean).join(", ")),
    "prompt " + data.prompt_tokens[row] + ", output " + data.output_tokens[row] + (data.concurrency[row] ? ", " + data.concurrency[row] + " in flight" : ""),
    plain(text("engine", row)),
  ];
  return lines.filter(Boolean).join("<br>");
}

// One trace a level of the chosen column, most rows first; every level keeps its colour.
function marks(rows, x, y, size, legend) {
  const column = data.texts[state.coloured];
  return column.levels.map((level, code) => {
    const mine = rows.filter((row) => column.codes[row] === code);
    return {
      type: "scatter", mode: "markers", name: plain(level), x: mine.map(x), y: mine.map(y),
      marker: { color: page.palette[code % page.palette.length], symbol: page.symbols[code % page.symbols.length], size, opacity: 0.75 },
      hoverinfo: "text", hovertext: mine.map(hover), showlegend: legend && mine.length > 0, rows: mine.length,
    };
  }).filter((trace) => trace.rows).sort((a, b) => b.rows - a.rows).map(({ rows: _, ...trace }) => trace);
}

const chosen = () => {
  const score = page.scores[state.shown];
  return all.filter((row) => text("metric", row) === score.metric && text("serving", row) === score.serving);
};

function drawScatter(rows, score) {
  const values = rows.flatMap((row) => [data.value[row], data.predicted[row]]);
  const low = values.reduce((a, b) => Math.min(a, b)) / 1.2;
  const high = values.reduce((a, b) => Math.max(a, b)) * 1.2;
  const line = (factor, own) => ({
    type: "scatter", mode: "lines", x: [low, high], y: [low * factor, high * factor], hoverinfo: "skip",
    showlegend: false, line: { color: style("--quiet"), width: 0 }, ...own,
  });
  const range = [Math.log10(low), Math.log10(high)];
  const title = (word) => ({ text: wrap(word + " " + page.names[score.metric] + (unit(score.metric) === "s" ? " (s)" : ""), narrow() ? 34 : 80) });
  react(element("scatter"), [
    line(1 - BAND), line(1 + BAND, { fill: "tonexty", fillcolor: "rgba(86, 180, 233, 0.22)", name: "within 20%", showlegend: true }),
    line(1, { line: { color: style("--ink"), width: 1.2 }, name: "exact", showlegend: true }),
    ...marks(rows, (row) => data.value[row], (row) => data.predicted[row], rows.length > 400 ? 5 : 8, true),
  ], {
    xaxis: { ...log, range, dtick: decades(low, high, narrow() ? 2 : 5), title: title("measured") },
    yaxis: { ...log, range, dtick: decades(low, high, 5), title: title("predicted") }, hovermode: "closest",
  });
}

function drawResiduals(rows) {
  for (const [name, words] of Object.entries(LOADS)) {
    const known = rows.filter((row) => data[name][row]);
    const plot = element("by-" + name);
    const values = [...new Set(known.map((row) => data[name][row]))];
    plot.hidden = values.length < 2;
    if (plot.hidden) continue;
    react(plot, marks(known, (row) => data[name][row], (row) => data.predicted[row] / data.value[row], known.length > 400 ? 4 : 6, false), {
      xaxis: { ...log, ...(values.length < 9 ? { tickvals: values } : { tickformat: "~s", dtick: narrow() ? 1 : "D2" }), title: { text: words } },
      yaxis: { ...log, dtick: "D2", title: { text: "predicted / measured" } }, hovermode: "closest",
      shapes: [
        { type: "rect", xref: "paper", x0: 0, x1: 1, y0: 1 - BAND, y1: 1 + BAND, fillcolor: "rgba(86, 180, 233, 0.22)", line: { width: 0 }, layer: "below" },
        { type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: style("--ink"), width: 1.2 }, layer: "below" },
      ],
    });
  }
}

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length / 2;
  return sorted.length % 2 ? sorted[Math.floor(half)] : (sorted[half - 1] + sorted[half]) / 2;
};

function drawGroups(rows) {
  const members = new Map();
  for (const row of rows) members.set(text("group", row), [...(members.get(text("group", row)) || []), row]);
  const groups = [...members].map(([name, mine]) => {
    const ratios = mine.map((row) => data.predicted[row] / data.value[row] - 1);
    return { name, rows: mine.length, error: median(ratios.map(Math.abs)), bias: median(ratios) };
  }).sort((a, b) => a.error - b.error);
  const label = (group) => plain(group.name).replace("|", narrow() ? "<br>" : " on ") + " " + "(" + group.rows.toLocaleString("en-US") + ")";
  const marked = (sign, name, colour) => {
    const mine = groups.filter((group) => (group.bias > 0) === sign);
    return {
      type: "scatter", mode: "markers", name, x: mine.map((group) => 100 * group.error), y: mine.map(label), marker: { color: colour, size: 11, symbol: sign ? "triangle-right" : "triangle-left" },
      hoverinfo: "text", hovertext: mine.map((group) => plain(group.name) + "<br>" + group.rows + " rows, median error " + percent(group.error) + ", bias " + percent(group.bias)),
    };
  };
  const plot = element("groups");
  const height = 110 + groups.length * (narrow() ? 34 : 22);
  plot.style.height = height + "px";
  react(plot, [marked(true, "mostly predicted too large", page.palette[1]), marked(false, "mostly too small", page.palette[0])], {
    height, hovermode: "closest",
    xaxis: { ...log, dtick: narrow() ? 1 : "D2", title: { text: "median error (%)" } },
    yaxis: { type: "category", categoryorder: "array", categoryarray: groups.map(label), tickfont: { size: 12 }, dtick: 1 },
  });
}

function drawCovered() {
  const scores = [...page.scores].reverse();
  const label = (score) => (narrow() ? plain(page.names[score.metric]) + "<br>" + score.serving : plain(named(score))) + " (" + score.rows.toLocaleString("en-US") + ")";
  const height = 110 + scores.length * (narrow() ? 38 : 26);
  element("covered").style.height = height + "px";
  react(element("covered"), [{
    type: "bar", orientation: "h", x: scores.map((score) => 100 * score.interval_coverage), y: scores.map(label),
    marker: { color: page.palette[0] }, hoverinfo: "text", hovertext: scores.map((score) => plain(named(score)) + ": " + percent(score.interval_coverage) + " of " + score.rows + " rows"),
  }], {
    height, showlegend: false, hovermode: "closest",
    xaxis: { title: { text: narrow() ? "inside the interval (%)" : "measured values inside the 80% interval (%)" }, range: [0, 102] }, yaxis: { type: "category", dtick: 1 },
    shapes: [{ type: "line", x0: 80, x1: 80, yref: "paper", y0: 0, y1: 1, line: { color: style("--ink"), width: 2, dash: "dash" } }],
  });
}

function drawAll() {
  const rows = chosen();
  if (rows.length) {
    drawScatter(rows, page.scores[state.shown]);
    drawResiduals(rows);
    drawGroups(rows);
  }
  drawCovered();
}

page.scores.forEach((score, k) => {
  const option = make("option", named(score) + " (" + score.rows.toLocaleString("en-US") + " rows)", element("shown"));
  option.value = k;
});
element("shown").addEventListener("change", (event) => { state.shown = Number(event.target.value); drawAll(); });
element("coloured").addEventListener("change", (event) => { state.coloured = event.target.value; drawAll(); });
if (page.scores.length) drawAll();
printing(drawAll);
redrawing(drawAll);
})();

(() => {
"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
const OWN = { ink: "--ink", grid: "--quiet", paper: "--paper" };
const colour = (value) => (OWN[value] ? style(OWN[value]) : value);
const coloured = (whole, name) => (whole[name] && whole[name].color ? { [name]: { ...whole[name], color: colour(whole[name].color) } } : {});
// Segments of a bar stay apart.
const edged = (trace) => {
  const own = coloured(trace, "marker");
  return trace.type === "bar" && own.marker && !own.marker.line ? { marker: { ...own.marker, line: { color: style("--paper"), width: 0.6 } } } : own;
};

// Names of segments only where the segment is wide enough to hold them.
function fitText(plot) {
  for (const text of plot.querySelectorAll(".barlayer .point text")) {
    const bar = text.parentNode.querySelector("path");
    text.style.visibility = text.getBBox().width + 6 > bar.getBBox().width ? "hidden" : "visible";
  }
}

// The names (`meta`) of the marks of a picture whose axes have a range, beside all its marks.
function nameMarks(plot, { xaxis, yaxis }, traces) {
  const [wide, high] = [plot.clientWidth - 80, plot.clientHeight - 100];
  const at = (axis, value) => (axis.type === "log" ? Math.log10(value) : value);
  const share = (axis, value) => (at(axis, value) - axis.range[0]) / (axis.range[1] - axis.range[0]);
  const marks = traces.flatMap((trace) => trace.x.map((x, i) => ({
    h: wide * share(xaxis, x), v: high * share(yaxis, trace.y[i]), x: at(xaxis, x), y: at(yaxis, trace.y[i]),
    text: (trace.meta || [])[i], spare: true, large: trace.marker.size > 8,
  })));
  return named(marks.filter((mark) => mark.large), marks.map(({ h, v }) => [h, v]), wide, high, 16, narrow() ? 9 : 11);
}

const names = Object.keys(page.figures);
function draw(ids) {
  for (const [id, figure] of ids.map((name) => [name, page.figures[name]])) {
    const traces = figure.data.map((trace) => ({ ...trace, ...edged(trace), ...coloured(trace, "line"), ...coloured(trace, "textfont") }));
    const shapes = (figure.layout.shapes || []).map((shape) => ({ ...shape, ...coloured(shape, "line") }));
    // A phone has room for the names of axes alone, and for short lines.
    const phone = (own) => ({
      ...own, tickfont: { size: 11 },
      ...(own.title ? { title: { text: inLines(own.title.text.replace(/, (lower|higher) is better$/, "").replace(/<br>/g, " "), 34), font: { size: 11 } } } : {}),
      ...(own.categoryarray ? { categoryarray: own.categoryarray.map((name) => inLines(name, 17)) } : {}),
    });
    const bare = (own) => (own && narrow() ? phone(own) : own);
    if (figure.layout.yaxis && figure.layout.yaxis.categoryarray) for (const trace of traces) trace.y = trace.y.map((name) => inLines(name, 17));
    if (narrow()) for (const trace of traces) if (trace.orientation === "h" && trace.textposition !== "inside") trace.textposition = "none";
    const legend = narrow() && figure.layout.meta === "named" ? { legend: { ...LEGEND, font: { size: 10 } } } : {};
    const annotations = figure.layout.meta === "named" ? nameMarks(element(id), figure.layout, figure.data) : [];
    const drawn = react(element(id), traces, { ...figure.layout, xaxis: bare(figure.layout.xaxis), yaxis: bare(figure.layout.yaxis), shapes, annotations, ...legend });
    if (figure.layout.meta === "fit") drawn.then(fitText);
  }
}

for (const table of document.querySelectorAll("table:not(#rows, .opening table)")) copyButton(table, () => tableText(table));
draw(names.slice(0, 1));
later.push(() => draw(names.slice(1)));
const finish = () => {
  for (const one of later.splice(0)) one();
  document.documentElement.dataset.drawn = "all";
};
// A click on a decision, in the picture or in its table, shows the design.
const opening = page.figures["opening-plot"];
if (opening && actions.pick) {
  element("opening-plot").on("plotly_click", (event) => actions.pick(event.points[0].customdata));
  // The first decision is drawn over the others.
  const customdata = opening.data.filter((trace) => trace.mode === "markers+text").reverse().flatMap((trace) => trace.customdata);
  document.querySelectorAll("#table-opening tbody tr").forEach((row, k) => row.addEventListener("click", () => actions.pick(customdata[k])));
}
draws.push(() => draw(names));
const drawAll = () => { finish(); for (const one of draws) one(); };
printing(drawAll);
redrawing(drawAll);
requestAnimationFrame(() => setTimeout(finish));
})();

(() => {
"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
const colour = (value) => (value === "ink" || value === "grid" ? style("--" + (value === "grid" ? "quiet" : value)) : value);
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

function draw() {
  for (const [id, figure] of Object.entries(page.figures)) {
    const traces = figure.data.map((trace) => ({ ...trace, ...edged(trace), ...coloured(trace, "line") }));
    const shapes = (figure.layout.shapes || []).map((shape) => ({ ...shape, ...coloured(shape, "line") }));
    const drawn = react(element(id), traces, { ...figure.layout, shapes });
    if (figure.layout.meta === "fit") drawn.then(fitText);
  }
}

for (const table of document.querySelectorAll("table:not(#rows)")) copyButton(table, () => tableText(table));
draw();
draws.push(draw);
const drawAll = () => { for (const one of draws) one(); };
printing(drawAll);
redrawing(drawAll);
})();

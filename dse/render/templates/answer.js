(() => {
"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);
const colour = (value) => (value === "ink" || value === "grid" ? style("--" + (value === "grid" ? "quiet" : value)) : value);
const coloured = (whole, name) => (whole[name] && whole[name].color ? { [name]: { ...whole[name], color: colour(whole[name].color) } } : {});

function draw() {
  for (const [id, figure] of Object.entries(page.figures)) {
    const traces = figure.data.map((trace) => ({ ...trace, ...coloured(trace, "marker"), ...coloured(trace, "line") }));
    const shapes = (figure.layout.shapes || []).map((shape) => ({ ...shape, ...coloured(shape, "line") }));
    react(element(id), traces, { ...figure.layout, shapes });
  }
}

for (const table of document.querySelectorAll("table")) copyButton(table, () => tableText(table));
draw();
printing(draw);
redrawing(draw);
})();

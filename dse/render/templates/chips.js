(() => {
"use strict";
const page = JSON.parse(document.getElementById("page-data").textContent);

function drawFigures() {
  for (const [id, figure] of Object.entries(page.figures)) {
    const rows = figure.data.filter((trace) => trace.mode === "lines").length;
    const narrow = window.innerWidth < 700;
    const legend = narrow ? { orientation: "v", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 }, itemclick: false, itemdoubleclick: false } : undefined;
    react(element(id), figure.data, { ...figure.layout, height: figure.layout.height + (narrow ? 20 * rows : 0), ...(legend && { legend }) });
  }
}

for (const table of document.querySelectorAll("table")) copyButton(table, () => tableText(table));
drawFigures();
printing(drawFigures);
redrawing(drawFigures);
})();

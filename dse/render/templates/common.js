// What every page shares: reading the page's colours, drawing with plotly, copying tables, printing.
const config = { displayModeBar: false };
// What draws the page again: on paper, in another width or another colour scheme.
const draws = [];
// What waits until the first picture is on the screen.
const later = [];
// What parts of a page do for one another: `pick(point)` shows a design of the front.
const actions = {};
const element = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Plotly reads a subset of HTML in its labels; names must come out as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const make = (tag, text, parent) => {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
};

// Lines of at most `width` characters, for titles that Plotly would cut off.
const broken = (text, width) => {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if (lines[last] && (lines[last] + " " + word).length > width) lines.push(word);
    else lines[last] += (lines[last] ? " " : "") + word;
  }
  return lines;
};
const wrap = (text, width) => broken(text, width).map(plain).join("<br>");
// The same of a text that is plain already, on a phone.
const narrow = () => window.innerWidth < 560;
const inLines = (text, width) => (narrow() ? broken(text, width).join("<br>") : text);

const axis = (own) => ({
  gridcolor: style("--grid"), zerolinecolor: style("--grid"), linecolor: style("--line"),
  automargin: true, ...own,
});

const LEGEND = { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false };
const layout = (own) => ({
  font: { family: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size: own.meta === "small" ? 10.5 : 13, color: style("--ink") },
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  margin: { l: 12, r: 18, t: 12, b: own.meta === "small" ? 26 : 44 },
  hoverlabel: { align: "left", bgcolor: style("--panel"), bordercolor: style("--line"), font: { color: style("--ink"), size: 12 } },
  legend: LEGEND,
  dragmode: false,
  ...own, xaxis: axis(own.xaxis), yaxis: axis(own.yaxis),
  height: own.meta === "small" && document.querySelector("html.paper") ? 150 : own.height,
});

// Its width is given, for a picture must fit the paper at once when it is printed.
const react = (plot, traces, own) => Plotly.react(plot, traces, { ...layout(own), width: plot.clientWidth }, config);

// Names of marks at (h, v) pixels of a picture, each where it covers no other name or mark and few
// of the `dots`, as far as there is room; a `spare` one is left out where there is none.
function named(chosen, dots, wide, high, size, points) {
  const r = size / 2 + 2;
  const taken = chosen.map(({ h, v }) => ({ left: h - r, right: h + r, low: v - r, top: v + r }));
  const overlap = (a, b) => Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.top, b.top) - Math.max(a.low, b.low));
  const sides = [[0, -1], [0, 1], [1, 0], [-1, 0], [1, -1], [-1, -1], [1, 1], [-1, 1]];
  return chosen.filter(({ text }) => text).flatMap(({ h, v, x, y, text, spare }) => {
    const [width, height] = [0.62 * points * text.length + 8, points + 6];
    const boxes = sides.map(([side, level]) => {
      const middle = h + side * (width / 2 + (level ? 0 : r));
      const centre = v + level * (r + height / 2);
      const box = { side, level, left: middle - width / 2, right: middle + width / 2, low: centre - height / 2, top: centre + height / 2 };
      const outside = Math.max(0, -box.left) + Math.max(0, box.right - wide) + Math.max(0, -box.low) + Math.max(0, box.top - high);
      box.covers = taken.reduce((sum, other) => sum + overlap(box, other), 0);
      box.cost = box.covers + 20 * outside
        + 30 * dots.filter(([a, b]) => a > box.left && a < box.right && b > box.low && b < box.top).length;
      return box;
    });
    const best = boxes.reduce((a, b) => (b.cost < a.cost ? b : a));
    if (spare && best.covers > 0.2 * width * height) return [];
    taken.push(best);
    return [{
      x, y, text: "<b>" + plain(text) + "</b>", showarrow: false,
      xanchor: best.side > 0 ? "left" : best.side < 0 ? "right" : "center",
      yanchor: best.level > 0 ? "bottom" : best.level < 0 ? "top" : "middle",
      xshift: best.level ? 0 : best.side * r, yshift: best.level * r,
      font: { size: points, color: style("--ink") }, bgcolor: style("--paper"), opacity: 0.88, borderpad: 1,
    }];
  });
}

// Tables as tab-separated text: plain numbers, their unit in the heading where a column has one.
const UNITS = { "": ["", 1], $: ["USD", 1], s: ["s", 1], ms: ["s", 1e-3], "µs": ["s", 1e-6], GB: ["bytes", 1e9], MB: ["bytes", 1e6], kB: ["bytes", 1e3], "%": ["share", 1e-2], J: ["J", 1], T: ["", 1e12], B: ["", 1e9], M: ["", 1e6] };
function quantity(text) {
  const found = /^(\$?)(-?[\d,]*\.?\d+) ?(s|ms|µs|GB|MB|kB|%|J|T|B|M|)$/.exec(text);
  if (!found) return null;
  const [unit, factor] = UNITS[found[1] || found[3]];
  return { unit, value: String(Number((Number(found[2].replace(/,/g, "")) * factor).toPrecision(12))) };
}
const flat = (text) => text.replace(/\s+/g, " ").trim();
const tsv = (lines) => lines.map((line) => line.join("\t")).join("\n") + "\n";
function tableText(table) {
  const lines = [...table.rows].map((row) => [...row.cells].map((cell) => flat(cell.dataset.value ?? cell.textContent)));
  const head = table.tHead ? lines[0] : [];
  if (table.tHead) [...table.rows[0].cells].forEach((cell, k) => { if (cell.dataset.unit) head[k] += " (" + cell.dataset.unit + ")"; });
  const body = lines.slice(table.tHead ? 1 : 0);
  for (let k = 0; k < Math.max(0, ...body.map((line) => line.length)); k++) {
    const known = body.map((line) => line[k]).filter((text) => text && text !== "–").map(quantity);
    if (!known.length || known.some((found) => found === null || found.unit !== known[0].unit)) continue;
    if (known[0].unit && head[k] !== undefined) head[k] += " (" + known[0].unit + ")";
    for (const line of body) line[k] = line[k] && line[k] !== "–" ? quantity(line[k]).value : "";
  }
  return tsv(table.tHead ? [head, ...body] : body);
}
// Pages opened from a disk may have no clipboard of their own; a copy event works there too.
function copy(text, button) {
  document.addEventListener("copy", (event) => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  }, { once: true });
  const done = document.execCommand("copy");
  button.textContent = done ? "Copied" : "Not allowed here";
  setTimeout(() => { button.textContent = "Copy table"; }, 1500);
}
function copyButton(table, text) {
  const button = make("button", "Copy table");
  button.type = "button";
  button.className = "copy";
  button.title = "Copies the table for a spreadsheet";
  button.addEventListener("click", () => copy(text(), button));
  (table.closest(".scroll") || table).before(button);
}

// On paper: light, as wide as a page, and with everything unfolded.
function printing(draw) {
  let folded = [];
  const before = () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
    document.documentElement.classList.add("paper");
    draw();
  };
  const after = () => {
    for (const part of folded) part.open = false;
    document.documentElement.classList.remove("paper");
    draw();
  };
  window.addEventListener("beforeprint", before);
  window.addEventListener("afterprint", after);
}

function redrawing(draw) {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let [waiting, width] = [0, window.innerWidth];
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  });
}

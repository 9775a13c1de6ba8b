// What every page shares: reading the page's colours, drawing with plotly, copying tables, printing.
const config = { displayModeBar: false };
// What draws the page again: on paper, in another width or another colour scheme.
const draws = [];
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
const wrap = (text, width) => {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if (lines[last] && (lines[last] + " " + word).length > width) lines.push(word);
    else lines[last] += (lines[last] ? " " : "") + word;
  }
  return lines.map(plain).join("<br>");
};

const axis = (own) => ({
  gridcolor: style("--grid"), zerolinecolor: style("--grid"), linecolor: style("--line"),
  automargin: true, ...own,
});

const layout = (own) => ({
  font: { family: "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif", size: 13, color: style("--ink") },
  paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
  margin: { l: 12, r: 18, t: 12, b: 44 },
  hoverlabel: { align: "left", bgcolor: style("--panel"), bordercolor: style("--line"), font: { color: style("--ink"), size: 12 } },
  legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", itemclick: false, itemdoubleclick: false },
  dragmode: false,
  ...own, xaxis: axis(own.xaxis), yaxis: axis(own.yaxis),
});

// Its width is given, for a picture must fit the paper at once when it is printed.
const react = (plot, traces, own) => Plotly.react(plot, traces, { ...layout(own), width: plot.clientWidth }, config);

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

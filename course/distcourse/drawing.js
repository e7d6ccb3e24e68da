// The page's side of drawing.py: a sheet to draw on, and a picture of every layer's values and slopes.
const SIDE = 32, ZOOM = 7;

// dark blue - grey - yellow: lightness rises all the way, so that it reads in greyscale, too
function colour(v) {
  const ends = [[19, 47, 91], [138, 138, 128], [250, 215, 90]];
  const t = Math.max(-1, Math.min(1, v)) + 1, k = Math.min(1, Math.floor(t));
  return `rgb(${ends[k].map((a, i) => Math.round(a + (t - k) * (ends[k + 1][i] - a))).join()})`;
}

function grid(canvas, values, columns, most) {
  const size = Number(canvas.dataset.cell), rows = Math.ceil(values.length / columns);
  canvas.width = columns * size;
  canvas.height = rows * size;
  const pen = canvas.getContext("2d");
  values.forEach((v, i) => {
    pen.fillStyle = colour(most > 0 ? v / most : 0);
    pen.fillRect((i % columns) * size, Math.floor(i / columns) * size, size - 1, size - 1);
  });
}

function element(parent, tag, text, style) {
  const made = parent.appendChild(document.createElement(tag));
  if (text) made.textContent = text;
  if (style) made.style.cssText = style;
  return made;
}

function render({ model, el }) {
  const page = element(el, "div", "", "display:flex;flex-wrap:wrap;gap:20px;align-items:flex-start;max-width:900px");
  const left = element(page, "div"), right = element(page, "div", "", "flex:1;min-width:480px");
  const sheet = element(left, "canvas", "", "background:black;touch-action:none;cursor:crosshair;border:1px solid grey");
  sheet.width = sheet.height = SIDE * ZOOM;
  sheet.className = "distlearn-sheet";
  sheet.setAttribute("aria-label", "sheet to draw a digit on");
  const buttons = element(left, "div"), clear = element(buttons, "button", "Clear");
  const step = element(buttons, "button", "One step of training on it");
  const told = element(left, "div", "Draw a digit here, large.", "width:224px;min-height:3em");
  told.className = "distlearn-told";
  const ink = new Array(SIDE * SIDE).fill(0);

  function draw() {
    const pen = sheet.getContext("2d");
    pen.fillStyle = "black";
    pen.fillRect(0, 0, sheet.width, sheet.height);
    pen.fillStyle = "white";
    ink.forEach((on, i) => on && pen.fillRect((i % SIDE) * ZOOM, Math.floor(i / SIDE) * ZOOM, ZOOM, ZOOM));
  }
  let waiting = false;
  function send() {  // at most every 60 ms
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; model.set("ink", ink.join("")); model.save_changes(); }, 60);
  }
  function dot(event) {
    const box = sheet.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * SIDE, y = ((event.clientY - box.top) / box.height) * SIDE;
    for (let i = 0; i < ink.length; i++)
      if (Math.hypot((i % SIDE) + 0.5 - x, Math.floor(i / SIDE) + 0.5 - y) < 1.8) ink[i] = 1;
    draw();
    send();
  }
  sheet.addEventListener("pointerdown", (event) => { sheet.setPointerCapture(event.pointerId); dot(event); });
  sheet.addEventListener("pointermove", (event) => { if (event.buttons) dot(event); });
  clear.addEventListener("click", () => { ink.fill(0); model.set("label", -1); draw(); send(); });
  step.addEventListener("click", () => { model.set("steps", model.get("steps") + 1); model.save_changes(); });

  function show() {
    const reply = model.get("reply");
    right.replaceChildren();
    step.disabled = !reply.layers || model.get("label") < 0;
    if (!reply.layers) { told.textContent = "Draw a digit here, large."; return; }
    told.textContent = `It reads ${reply.guess}. Loss, if it is meant to be ${reply.label}: ${reply.loss.toFixed(3)}` +
      (model.get("label") < 0 ? ". Click on the digit that you meant." : ".");
    const bars = element(right, "div", "", "display:flex;gap:4px;height:92px;align-items:flex-end");
    bars.className = "distlearn-digits";
    reply.probabilities.forEach((p, digit) => {
      const bar = element(bars, "button", "", "width:42px;padding:0;border:none;background:none;cursor:pointer;color:inherit");
      bar.setAttribute("aria-label", `${digit}: ${(100 * p).toFixed(1)} percent`);
      element(bar, "div", `${(100 * p).toFixed(0)} %`, "font-size:11px");
      element(bar, "div", "", `height:${Math.max(1, 46 * p)}px;background:${colour(p)}`);
      element(bar, "div", String(digit), digit === reply.label ? "font-weight:bold;text-decoration:underline" : "");
      bar.addEventListener("click", () => { model.set("label", digit); model.save_changes(); });
    });
    const table = element(right, "div", "", "display:grid;grid-template-columns:70px 1fr 1fr;gap:4px 12px;font-size:12px;margin-top:8px");
    ["", "values, forward", "slopes dL/d(value), backward"].forEach((text) => element(table, "b", text));
    reply.layers.forEach((layer) => {
      element(table, "span", layer.name);
      for (const part of ["values", "slopes"]) {
        const numbers = layer[part], most = Math.max(...numbers.map(Math.abs)), cell = element(table, "div");
        if (!numbers.length) continue;
        const canvas = element(cell, "canvas");
        canvas.dataset.cell = layer.name === "input" ? 11 : 13;
        grid(canvas, numbers, layer.name === "input" ? 8 : 16, most);
        element(cell, "div", `largest ${most.toPrecision(2)}`, "font-size:10.5px");
      }
    });
  }
  model.on("change:reply", show);
  model.on("change:label", show);
  draw();
  show();
}

export default { render };

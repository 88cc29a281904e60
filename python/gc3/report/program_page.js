(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = (id) => document.getElementById(id);

  // Step by step.
  const slider = by("round");
  if (slider) {
    const groups = [...document.querySelectorAll("#flow .round")];
    const back = by("back"), forward = by("forward"), play = by("play");
    let timer = 0;
    const show = (k) => {
      slider.value = k;
      groups.forEach((g, i) => g.toggleAttribute("hidden", i !== k - 1));
      by("at").textContent = `${k} of ${data.rounds}`;
      back.disabled = k <= 1;
      forward.disabled = k >= data.rounds;
      const made = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
      const told = ([src, dst, what]) => `${src} → ${dst}: ${what}`;
      by("moves").replaceChildren(...data.moves[k - 1].map(([who, line, moves]) => {
        const row = made("li", ""), from = data.lines[line] ? ` · ${data.lines[line]}` : "";
        if (moves.length === 1) {
          row.textContent = told(moves[0]) + from;
          return row;
        }
        const all = made("details", "");
        all.append(made("summary", `${moves.length} messages, as ${told(moves[0])}`), ...moves.map((m) => made("div", told(m))));
        row.append(made("b", who), from, all);
        return row;
      }));
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
      play.setAttribute("aria-pressed", "false");
    };
    const go = (by) => show(Math.min(data.rounds, Math.max(1, Number(slider.value) + by)));
    back.onclick = () => { stop(); go(-1); };
    forward.onclick = () => { stop(); go(1); };
    slider.oninput = () => { stop(); show(Number(slider.value)); };
    play.onclick = () => {
      if (timer) return stop();
      if (Number(slider.value) >= data.rounds) show(1);
      play.textContent = "Pause";
      play.setAttribute("aria-pressed", "true");
      timer = setInterval(() => Number(slider.value) < data.rounds ? go(1) : stop(), 900);
    };
    show(1);
  }

  // Schedule: `scale` times as wide, moved by `offset` of the drawing's own units.
  const lanes = by("lanes");
  const bars = lanes.querySelector(".bars"), ticks = lanes.querySelector(".ticks");
  const inner = lanes.querySelector("svg");
  const width = Number(inner.getAttribute("width")), left = Number(inner.getAttribute("x"));
  const total = data.bars.reduce((most, bar) => Math.max(most, bar[3]), 0) || 1;
  const rects = [...lanes.querySelectorAll(".bar")];
  const end = rects.reduce((most, r) => Math.max(most, Number(r.getAttribute("x")) + Number(r.getAttribute("width"))), 1);
  const micros = total / end;
  let scale = 1, offset = 0, chosen = -1;
  const draw = () => {
    offset = Math.min(Math.max(0, offset), width - width / scale);
    bars.setAttribute("transform", `scale(${scale} 1) translate(${-offset} 0)`);
    // Round times, as svg.round_ticks has them.
    const span = width / scale * micros, unit = 10 ** Math.floor(Math.log10(span));
    const step = [0.1, 0.2, 0.5, 1, 2].map((part) => part * unit).find((s) => span / s <= 8);
    const first = Math.max(1, Math.ceil(offset * micros / step));
    while (ticks.children.length < 9) ticks.append(ticks.firstElementChild.cloneNode(true));
    [...ticks.children].forEach((tick, k) => {
      const time = (first + k) * step, at = (time / micros - offset) * scale;
      tick.setAttribute("transform", `translate(${left + at} 0)`);
      tick.toggleAttribute("hidden", at >= width);
      tick.querySelector("text").textContent = `${Number(time.toPrecision(4))} us`;
    });
    by("out").disabled = by("whole").disabled = scale <= 1;
    by("left").disabled = offset <= 0;
    by("right").disabled = offset >= width - width / scale - 1e-6;
  };
  const zoom = (factor, at = 0.5) => {
    const fixed = offset + at * width / scale;
    scale = Math.min(4096, Math.max(1, scale * factor));
    offset = fixed - at * width / scale;
    draw();
  };
  const tell = (k) => {
    if (chosen >= 0) rects[chosen].classList.remove("told");
    chosen = k;
    rects[k].classList.add("told");
    const [text, line, from, to, wait, cause, critical] = data.bars[k];
    by("told").textContent = text + (data.lines[line] ? ` (${data.lines[line]})` : "") + `. ${from} to ${to} us` +
      (wait > 0 ? `, after waiting ${wait} us (${data.causes[cause]})` : "") + (critical ? "; on the critical path." : ".");
  };
  by("in").onclick = () => zoom(2);
  by("out").onclick = () => zoom(0.5);
  by("left").onclick = () => { offset -= width / scale / 2; draw(); };
  by("right").onclick = () => { offset += width / scale / 2; draw(); };
  by("whole").onclick = () => { scale = 1; offset = 0; draw(); };
  const critical = data.bars.map((bar, k) => bar[6] ? k : -1).filter((k) => k >= 0);
  by("next").disabled = !critical.length;
  by("next").onclick = () => {
    const k = critical[(critical.indexOf(chosen) + 1) % critical.length];
    tell(k);
    const x = Number(rects[k].getAttribute("x"));
    if (x < offset || x > offset + width / scale) { offset = x - width / scale / 4; draw(); }
  };
  lanes.addEventListener("mouseover", (event) => {
    if (event.target.dataset.k !== undefined) tell(Number(event.target.dataset.k));
  });
  lanes.addEventListener("click", (event) => {
    if (event.target.dataset.k !== undefined) tell(Number(event.target.dataset.k));
  });
  lanes.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = inner.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, (event.clientX - box.left) / (box.width || 1))));
  }, { passive: false });
  let drag = null;
  lanes.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, offset }; });
  addEventListener("pointermove", (event) => {
    if (!drag || scale <= 1) return;
    offset = drag.offset - (event.clientX - drag.x) / scale;
    draw();
  });
  addEventListener("pointerup", () => { drag = null; });
  lanes.parentElement.addEventListener("keydown", (event) => {
    const keys = { "+": "in", "=": "in", "-": "out", "0": "whole", n: "next" };
    if (keys[event.key]) by(keys[event.key]).click();
  });
  draw();
})();

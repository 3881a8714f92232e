"use strict";
// Matches as points: those of the stretch of time at hand in colour, the others faint. Data are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const canvas = $("plane"), pen = canvas.getContext("2d");
  const RAMPS = { // the less probable is nearer the paper
    light: ["#a9d3ee", "#5aa5d8", "#1f6fb0", "#123a73", "#0a1633"],
    dark: ["#1d4a7a", "#2f7cc0", "#63b3e6", "#b3e0f7", "#ffffff"],
  };
  const [LEFT, RIGHT, TOP, BOTTOM] = [110, 24, 46, 60]; // of the plane, whose points are half a pixel of the page
  const LISTED = 14;
  const STEPS = +$("scrub").max;
  const first = data.times[0], last = data.times.at(-1), span = last - first || 1;
  const least = Math.min(...data.probability.filter((p) => p !== null));
  let timer = 0, places = [], picked = -1;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const digits = { maximumFractionDigits: 20 };
  const short = (value) => (value === null ? "" : Number(value.toPrecision(4)).toLocaleString("en", digits));

  function colour(probability) {
    const ramp = dark.matches ? RAMPS.dark : RAMPS.light;
    const share = least < 1 ? (probability - least) / (1 - least) : 1;
    const place = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
    const below = Math.min(Math.floor(place), ramp.length - 2);
    const [a, b] = [ramp[below], ramp[below + 1]].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
    return `rgb(${a.map((part, i) => Math.round(part + (b[i] - part) * (place - below))).join(" ")})`;
  }

  function stretch() {
    const length = span * +$("stretch").value, until = first + (span * +$("scrub").value) / STEPS;
    return $("stretch").value === "1" ? [first, until] : [until - length, until];
  }

  function extent(values, room = 0.5) {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (!(low <= high)) return [0, 1];
    return low === high ? [low - room, high + room] : [low, high];
  }

  const scale = ([low, high], start, end) => (value) => start + ((value - low) / (high - low)) * (end - start);

  function ticks([low, high], most) {
    const power = 10 ** Math.floor(Math.log10((high - low) / most));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => (high - low) / s <= most);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high; i++) found.push([i * step, short(i * step + 0)]); // of -0 it makes 0
    return found;
  }

  // What is shown: across, up, how each is scaled and called.
  function view() {
    const inside = [LEFT, canvas.width - RIGHT], down = [canvas.height - BOTTOM, TOP];
    if ($("view").value === "map") {
      const [east, north, x, y] = data.across, ends = [extent(x, 0), extent(y, 0)];
      const [wide, high] = ends.map(([low, most]) => most - low), most = Math.max(wide, high) || 1;
      const each = Math.min((inside[1] - inside[0]) / (wide || most), (down[0] - down[1]) / (high || most));
      const middle = (end) => (end[0] + end[1]) / 2;
      const sx = (value) => (inside[0] + inside[1]) / 2 + each * (value - middle(ends[0]));
      const sy = (value) => (down[0] + down[1]) / 2 - each * (value - middle(ends[1]));
      const shown = ([from, to], end) => [from - to, to - from].map((room) => middle(end) + room / each / 2); // more than the extent
      const across = ticks(shown(inside, ends[0]), 6), up = ticks(shown([down[1], down[0]], ends[1]), 5);
      return { x, y, sx, sy, across, up, names: [east, north] };
    }
    const [, name, y] = data.views.find((v) => v[0] === $("view").value), end = extent(y);
    const sx = scale([first, first + span], ...inside), sy = scale(end, ...down);
    return { x: data.times, y, sx, sy, across: data.ticks, up: ticks(end, 5), names: ["", name] };
  }

  function axes(v) {
    // On a narrow screen the picture shrinks, and its letters stay at least 9 pixels high.
    const letters = Math.max(22, Math.round((9.5 * canvas.width) / (canvas.clientWidth || canvas.width)));
    pen.font = `${letters}px system-ui, sans-serif`;
    pen.strokeStyle = css("--grid");
    pen.fillStyle = css("--quiet");
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const [value] of v.across) { pen.moveTo(v.sx(value), TOP); pen.lineTo(v.sx(value), canvas.height - BOTTOM); }
    for (const [value] of v.up) { pen.moveTo(LEFT, v.sy(value)); pen.lineTo(canvas.width - RIGHT, v.sy(value)); }
    pen.stroke();
    pen.textAlign = "center";
    let free = 0;
    const most = canvas.width - (v.names[0] && letters > 22 ? pen.measureText(`${v.names[0]} →`).width + RIGHT + letters : 4);
    for (const [value, said] of v.across) {
      const half = pen.measureText(said).width / 2, x = Math.min(v.sx(value), canvas.width - half - 4);
      if (x - half < free || x + half > most) continue;
      pen.fillText(said, x, canvas.height - BOTTOM + letters + 6);
      free = x + half + letters / 2;
    }
    pen.textAlign = "right";
    for (const [value, said] of v.up) pen.fillText(said, LEFT - 10, v.sy(value) + letters / 3);
    if (v.names[0]) pen.fillText(`${v.names[0]} →`, canvas.width - RIGHT, canvas.height - 8);
    pen.textAlign = "left";
    pen.fillText(`${v.names[1]} ↑`, 10, letters);
  }

  function draw() {
    const [from, until] = stretch(), v = view(), size = data.times.length > 1500 ? 4 : 6;
    pen.clearRect(0, 0, canvas.width, canvas.height);
    axes(v);
    places = [];
    const inside = [];
    pen.fillStyle = css("--grid");
    data.times.forEach((time, i) => {
      if (v.x[i] === null || v.y[i] === null) {
        if (from <= time && time <= until) inside.push(i);
        return;
      }
      const [x, y] = [v.sx(v.x[i]), v.sy(v.y[i])];
      if (from <= time && time <= until) {
        inside.push(i);
        places.push([x, y, i]);
      } else pen.fillRect(x - 2, y - 2, 4, 4);
    });
    for (const [x, y, i] of places) {
      pen.fillStyle = colour(data.probability[i]);
      pen.beginPath();
      pen.arc(x, y, i === picked ? 12 : size, 0, 2 * Math.PI);
      pen.fill();
    }
    list(inside, from, until);
  }

  function list(inside, from, until) {
    const at = (time) => data.moments[Math.max(0, Math.round(((time - first) / span) * STEPS))];
    $("now").textContent = `${at(from)} to ${at(until)}`;
    $("scrub").setAttribute("aria-valuetext", $("now").textContent);
    $("listed-title").textContent = `In this stretch: ${inside.length.toLocaleString("en")} of those drawn`;
    const most = [...inside].sort((a, b) => data.probability[b] - data.probability[a] || a - b).slice(0, LISTED);
    if (picked >= 0 && inside.includes(picked) && !most.includes(picked)) most.unshift(picked);
    const table = document.createElement("table"), add = (tag, parent, said) => {
      const made = document.createElement(tag);
      if (said !== undefined) made.textContent = said;
      parent.append(made);
      return made;
    };
    add("caption", table, inside.length > LISTED ? `The ${LISTED} most probable` : "");
    const head = add("tr", add("thead", table));
    for (const name of ["left", "right", "time", "distance", "probability"]) add("th", head, name).scope = "col";
    const body = add("tbody", table);
    for (const i of most) {
      const row = add("tr", body);
      if (i === picked) row.style.background = "var(--grid)";
      add("th", row, data.names[0][i]).scope = "row";
      const upper = data.upper ? ` to ${short(data.upper[i])}` : "";
      const cells = [data.names[1][i], data.texts[i], short(data.distance[i]), short(data.probability[i]) + upper];
      for (const said of cells) add("td", row, said);
    }
    $("listed").replaceChildren(table);
  }

  function legend() {
    const steps = 20, made = (tag, attributes, said) => {
      const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
      if (said !== undefined) one.textContent = said;
      return one;
    };
    const box = made("svg", { viewBox: "0 0 240 28", role: "img", "aria-label": "Colours from improbable to certain" });
    for (let i = 0; i < steps; i++) {
      const fill = colour(least + ((1 - least) * i) / (steps - 1));
      box.append(made("rect", { x: (240 / steps) * i, y: 2, width: 240 / steps + 0.3, height: 11, fill }));
    }
    box.append(made("text", { x: 0, y: 25 }, short(least)), made("text", { x: 240, y: 25, "text-anchor": "end" }, "1"));
    $("ramp").replaceChildren(box);
  }

  function play(on) {
    clearInterval(timer);
    if (on && +$("scrub").value === STEPS) $("scrub").value = 0;
    const step = () => {
      $("scrub").value = +$("scrub").value + 1;
      draw();
      if (+$("scrub").value === STEPS) play(false);
    };
    timer = on ? setInterval(step, 60) : 0;
    $("listed").setAttribute("aria-live", on ? "off" : "polite");
    $("play").textContent = on ? "Pause" : "Play";
  }

  function pick(event) {
    const box = canvas.getBoundingClientRect(), each = canvas.width / box.width;
    const [x, y] = [(event.clientX - box.left) * each, (event.clientY - box.top) * each];
    let best = 400, found = -1;
    for (const [px, py, i] of places) {
      const far = (px - x) ** 2 + (py - y) ** 2;
      if (far < best) [best, found] = [far, i];
    }
    if (found !== picked) { picked = found; draw(); }
  }

  $("play").addEventListener("click", () => play(!timer));
  $("scrub").addEventListener("input", () => { play(false); draw(); });
  $("stretch").addEventListener("change", draw);
  $("view").addEventListener("change", draw);
  canvas.addEventListener("pointermove", pick);
  dark.addEventListener("change", () => { legend(); draw(); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("button, input, select")) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === " ") play(!timer);
    else if (!step) return;
    else { play(false); $("scrub").value = +$("scrub").value + step; draw(); }
    event.preventDefault();
  });
  legend();
  draw();
})();

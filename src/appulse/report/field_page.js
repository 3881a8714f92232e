"use strict";
// The film: everything that stands at a moment is drawn anew when the moment changes. Data are only ever set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const [each, across, up] = data.map;
  const at = ([x, y]) => [across + each * x, up - each * y];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const RAMPS = { // low values are near the paper, by theme; steps of lightness, so no hue has to be distinguished
    light: ["#fff7bc", "#fee391", "#fec44f", "#fe9929", "#d95f0e", "#993404", "#4a1a02"],
    dark: ["#40200c", "#7a3509", "#b8500c", "#f07f1c", "#feab45", "#fed77a", "#fffbe0"],
  };
  const DASHES = ["", "7 4", "2 3", "10 3 2 3"];
  const MARGIN = 13; // around the sensors of a region
  const circles = [...document.querySelectorAll("#map .sensor")];
  const rows = []; // of the list of events
  let now = 0, timer = 0, focused = 0;

  function make(tag, attributes, parent, text) {
    const svg = ["path", "circle", "text", "tspan", "g", "rect", "svg"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function colour(value) {
    const [low, high] = data.range;
    const ramp = dark.matches ? RAMPS.dark : RAMPS.light;
    const place = Math.min(1, Math.max(0, (value - low) / (high - low || 1))) * (ramp.length - 1);
    const below = Math.min(Math.floor(place), ramp.length - 2);
    const [a, b] = [ramp[below], ramp[below + 1]].map((c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16)));
    return `rgb(${a.map((part, i) => Math.round(part + (b[i] - part) * (place - below))).join(" ")})`;
  }

  const short = (value) => Number(value.toPrecision(4)).toLocaleString("en");
  const text = (value) => (data.classes.length ? data.classes[value] : short(value));

  function legend() {
    const steps = data.classes.length || 24, [low, high] = data.range;
    const box = make("svg", { viewBox: "0 0 240 30", role: "img", "aria-label": "Colours from low to high" });
    for (let i = 0; i < steps; i++) {
      const value = low + ((high - low) * i) / Math.max(1, steps - 1);
      make("rect", { x: (240 / steps) * i, y: 2, width: 240 / steps + 0.3, height: 11, fill: colour(value) }, box);
      if (data.classes.length) {
        make("text", { x: (240 / steps) * (i + 0.5), y: 26, "text-anchor": "middle" }, box, data.classes[i]);
      }
    }
    if (!data.classes.length) {
      make("text", { x: 0, y: 26 }, box, `≤ ${short(low)}`);
      make("text", { x: 120, y: 26, "text-anchor": "middle" }, box, short((low + high) / 2));
      make("text", { x: 240, y: 26, "text-anchor": "end" }, box, `≥ ${short(high)}`);
    }
    $("ramp").replaceChildren(box);
  }

  // The convex hull of discs around points: what a rubber band around the sensors would show (monotone chain).
  function outline(points) {
    const around = [];
    for (const [x, y] of points) {
      for (let i = 0; i < 24; i++) {
        const angle = (i * Math.PI) / 12;
        around.push([x + MARGIN * Math.cos(angle), y + MARGIN * Math.sin(angle)]);
      }
    }
    around.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const turn = (o, a, b) => (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0]);
    const half = (list) => {
      const kept = [];
      for (const point of list) {
        while (kept.length > 1 && turn(kept.at(-2), kept.at(-1), point) <= 0) kept.pop();
        kept.push(point);
      }
      return kept.slice(0, -1);
    };
    return [...half(around), ...half(around.reverse())];
  }

  const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const state = (one) => one.states.find(([from, until]) => from <= now && now < until);
  const ink = (one) => `var(--p${one.colour})`;

  function drawSensors(standing) {
    const inside = new Map(standing.flatMap(([one, its]) => its[2].map((i) => [i, one])));
    const wide = Math.min(2.2, 0.4 * +circles[0].getAttribute("r"));
    data.values[now].forEach((value, i) => {
      const ring = inside.has(i) ? `stroke:${ink(inside.get(i))};stroke-width:${wide}` : "";
      set(circles[i], "class", value === null ? "sensor stale" : "sensor");
      set(circles[i], "style", ring);
      if (value !== null) set(circles[i], "fill", colour(value));
    });
  }

  // Only what changed: with thousands of sensors that is what a moment costs.
  function set(one, name, value) {
    if (one.getAttribute(name) !== value) one.setAttribute(name, value);
  }

  function nameSensor(event) {
    const i = circles.indexOf(event.target);
    if (i < 0) return;
    const value = data.values[now][i];
    event.target.firstElementChild.textContent = `${data.sensors[i]}: ${value === null ? "no reading" : text(value)}`;
  }

  // A name above its region, moved down for as long as it would stand on another.
  function drawName(said, x, y, fill) {
    const drawn = make("text", { class: "name", x, y, "text-anchor": "middle" }, $("names"), said);
    drawn.prepend(make("tspan", { style: `fill:${fill}` }, null, "■ "));
    const others = [...$("names").children].slice(0, -1).map((name) => name.getBBox());
    const [wide, high] = [$("map").viewBox.baseVal.width, $("map").viewBox.baseVal.height];
    const half = drawn.getBBox().width / 2;
    drawn.setAttribute("x", Math.max(half + 4, Math.min(wide - half - 4, x)));
    for (let place = Math.max(14, y); place < high; place += 4) {
      drawn.setAttribute("y", place);
      const box = drawn.getBBox();
      const meets = (b) => b.x < box.x + box.width && box.x < b.x + b.width && b.y < box.y + box.height && box.y < b.y + b.height;
      if (!others.some(meets)) return;
    }
  }

  function drawRegion(one, [, , sensors, centroid, hull, , , value]) {
    const regions = $("regions"), dash = DASHES[one.dash % DASHES.length];
    const spot = (i) => ["cx", "cy"].map((name) => +circles[i].getAttribute(name));
    const corners = hull.length ? hull.map(at) : sensors.map(spot);
    if (!corners.length) return;
    const around = outline(corners);
    const shape = { class: "hull", stroke: ink(one), fill: ink(one), "stroke-dasharray": dash, d: `${line(around)}Z` };
    const drawn = make("path", shape, regions);
    make("title", {}, drawn, `${one.name}: ${value}, ${sensors.length} sensors`);
    if (centroid.length) {
      const [cx, cy] = at(centroid);
      make("circle", { cx, cy, r: 3, fill: ink(one) }, regions);
    }
    const top = around.reduce((best, point) => (point[1] < best[1] ? point : best));
    drawName(`${one.name} · ${value}`, top[0], top[1] - 5, ink(one));
  }

  function drawTrack(one, standing) {
    const seen = one.states.filter(([from, , , centroid]) => from <= now && centroid.length);
    if (seen.length > 1 && (standing || $("past").checked)) {
      const look = { class: standing ? "track" : "past", stroke: ink(one), d: line(seen.map((its) => at(its[3]))) };
      make("path", look, $("tracks"));
    }
  }

  function report(standing) {
    const box = $("standing");
    if (!standing.length) return box.replaceChildren(make("p", {}, null, "No phenomenon stands at this moment."));
    const table = make("table", {}), head = make("tr", {}, make("thead", {}, table)), body = make("tbody", {}, table);
    for (const name of ["phenomenon", "value", "sensors", "speed", data.axes]) make("th", { scope: "col" }, head, name);
    for (const [one, its] of standing) {
      const row = make("tr", {}, body), first = make("th", { scope: "row" }, row);
      make("span", { class: "swatch", style: `color:${ink(one)}` }, first);
      first.append(one.name);
      for (const cell of [its[7], its[2].length, its[5], its[6]]) make("td", {}, row, cell);
    }
    box.replaceChildren(table);
  }

  function mark() {
    let last = -1;
    rows.forEach((row, i) => {
      const here = data.events[i][0] === now;
      if (here) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
      if (data.events[i][0] <= now) last = i;
    });
    if (last >= 0 && !$("events").contains(document.activeElement)) {
      $("events").scrollTop = rows[last].offsetTop - $("events").offsetTop - $("events").clientHeight / 2;
    }
  }

  function show(moment) {
    now = Math.max(0, Math.min(data.frames.length - 1, moment));
    for (const name of ["tracks", "regions", "names"]) $(name).replaceChildren();
    const standing = [];
    for (const one of data.phenomena) {
      const its = state(one);
      drawTrack(one, Boolean(its));
      if (its) standing.push([one, its]);
    }
    drawSensors(standing);
    standing.sort((a, b) => b[1][2].length - a[1][2].length).forEach(([one, its]) => drawRegion(one, its));
    report(standing);
    mark();
    $("scrub").value = now;
    $("scrub").setAttribute("aria-valuetext", data.frames[now]);
    $("now").textContent = data.frames[now];
    $("cursor").setAttribute("transform", `translate(${data.at[now] - data.at[0]} 0)`);
  }

  function play(on) {
    clearInterval(timer);
    const step = () => (now < data.frames.length - 1 ? show(now + 1) : play(false));
    timer = on ? setInterval(step, 1000 / +$("speed").value) : 0;
    $("standing").setAttribute("aria-live", on ? "off" : "polite");
    $("play").textContent = on ? "Pause" : "Play";
    $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  }

  function toggle() {
    if (!timer && now === data.frames.length - 1) show(0);
    play(!timer);
  }

  function fill() {
    data.events.forEach(([frame, number, said], i) => {
      const one = data.phenomena[number];
      const look = { type: "button", tabindex: i ? -1 : 0, style: `border-color:${ink(one)}` };
      const row = make("button", look, make("li", {}, $("events")), said);
      row.addEventListener("click", () => { play(false); show(frame); });
      rows.push(row);
    });
    $("events").addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step || !rows[focused + step]) return;
      rows[focused].tabIndex = -1;
      focused += step;
      rows[focused].tabIndex = 0;
      rows[focused].focus();
      event.preventDefault();
    });
    $("events").addEventListener("focusin", (event) => {
      const place = rows.indexOf(event.target);
      if (place < 0) return;
      rows[focused].tabIndex = -1;
      focused = place;
      rows[focused].tabIndex = 0;
    });
  }

  function jump(event) {
    const box = $("timeline").getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * $("timeline").viewBox.baseVal.width;
    let best = 0;
    data.at.forEach((place, i) => { if (Math.abs(place - x) < Math.abs(data.at[best] - x)) best = i; });
    show(best);
  }

  $("map").addEventListener("pointerover", nameSensor);
  $("play").addEventListener("click", toggle);
  $("scrub").addEventListener("input", () => { play(false); show(+$("scrub").value); });
  $("speed").addEventListener("change", () => timer && play(true));
  $("past").addEventListener("change", () => show(now));
  $("timeline").addEventListener("pointerdown", (event) => { play(false); jump(event); });
  $("timeline").addEventListener("pointermove", (event) => event.buttons && jump(event));
  dark.addEventListener("change", () => { legend(); show(now); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("button, input, select")) return;
    const move = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: data.frames.length - 1 }[event.key];
    if (event.key === " ") toggle();
    else if (move === undefined) return;
    else { play(false); show(move); }
    event.preventDefault();
  });
  fill();
  legend();
  const linked = decodeURIComponent(location.hash.slice(1)); // page.html#2014-11-21 20:00: the last moment till then
  const before = (frame) => (Number.isNaN(+linked) ? frame <= linked : +frame <= +linked);
  show(linked ? data.frames.findLastIndex(before) : 0);
})();

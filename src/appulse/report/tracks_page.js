"use strict";
// Things that move, drawn anew at each moment, their place between two readings on a straight line. Data are only ever
// set as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const MARGIN = 40; // of the map, in its own units
  const FEW = 20; // regions
  const rows = [...document.querySelectorAll("#events button")];
  let now = 0, timer = 0, chosen = -1;

  function make(tag, attributes, parent, text) {
    const svg = ["path", "circle", "text", "tspan", "g"].includes(tag);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  // The part of the plane that the map shows: all of it, or where the chosen one happens.
  let each = 1, across = 0, up = 0, middle = 0, centre = 0;
  function look([west, south, east, north]) {
    const wide = Math.max(east - west, 1e-9), high = Math.max(north - south, 1e-9);
    each = Math.min((data.width - 2 * MARGIN) / wide, (data.height - 2 * MARGIN) / high);
    across = (data.width - each * (west + east)) / 2;
    up = (data.height + each * (south + north)) / 2;
    middle = (south + north) / 2;
    centre = (west + east) / 2;
  }
  const at = ([x, y]) => [across + each * x, up - each * y];

  // Mercator's plane, whose unit is a metre at the latitude of the data; that is null where readings are in a plane.
  const EARTH = 6371008.8, EQUATOR = 6378137, E2 = 0.0066943799901414; // metres; the square of WGS 84's eccentricity
  const turn = EARTH * Math.cos(data.latitude ?? 0), equator = turn * Math.asinh(Math.tan(data.latitude ?? 0));
  const stretch = (y) => (data.latitude === null ? 1 : Math.cos(data.latitude) * Math.cosh((y + equator) / turn));
  // Once around the Earth all is there again: of these places the one beside another.
  const round = data.latitude === null ? 0 : 2 * Math.PI * turn;
  const near = (x, other) => (round ? x - round * Math.round((x - other) / round) : x);
  const chained = (spots) => spots.reduce((all, [x, ...rest]) => [...all, [all.length ? near(x, all.at(-1)[0]) : x, ...rest]], []);
  function onEarth([x, y]) {
    const sine = Math.tanh((y + equator) / turn), cosine = 1 / Math.cosh((y + equator) / turn);
    const radius = EQUATOR / Math.sqrt(1 - E2 * sine * sine);
    return [radius * cosine * Math.cos(x / turn), radius * cosine * Math.sin(x / turn), (1 - E2) * radius * sine];
  }
  function apart(a, b) {
    if (data.latitude === null) return Math.hypot(a[0] - b[0], a[1] - b[1]);
    const [one, other] = [a, b].map(onEarth);
    const straight = Math.hypot(...one.map((part, i) => part - other[i]));
    return 2 * EARTH * Math.asin(Math.min(1, straight / 2 / EARTH));
  }

  // The last reading at or before a moment; -1 before the first.
  function before(thing, moment) {
    let low = -1, high = thing.t.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (thing.t[middle] <= moment) low = middle;
      else high = middle;
    }
    return low;
  }

  // Where a thing is at a moment: null where no readings are shown around it.
  function place(thing, moment) {
    const i = before(thing, moment);
    if (i < 0) return null;
    const gap = i + 1 < thing.t.length ? thing.t[i + 1] - thing.t[i] : Infinity;
    const [x, y, error] = [thing.x[i], thing.y[i], thing.e[i]];
    if (gap > 2 * data.around) return moment === thing.t[i] ? [near(x, centre), y, error] : null;
    const share = gap ? (moment - thing.t[i]) / gap : 0;
    return [near(x + share * (near(thing.x[i + 1], x) - x), centre), y + share * (thing.y[i + 1] - y), error];
  }

  function tail(thing, moment, spot) {
    const points = [spot];
    for (let i = before(thing, moment); i >= 0 && moment - thing.t[i] <= data.around; i--) points.push([thing.x[i], thing.y[i]]);
    return chained(points);
  }

  const line = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const ink = (one) => `var(--p${one.colour})`;
  const standing = () => data.happenings.filter((one) => one.times[0] <= now && now <= one.times[2]);
  const short = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const unit = data.unit ? ` ${data.unit}` : "";

  function clock(moment) {
    const millis = data.zero + moment;
    if (!data.stamps) return `${Number((millis / 1000).toPrecision(12))}`;
    return new Date(millis).toISOString().slice(0, 19).replace("T", " ");
  }

  // A ring as a whole, its middle beside a place; where that is none, as it is.
  function beside(ring, other) {
    const sides = ring.map(([x]) => x), own = (Math.min(...sides) + Math.max(...sides)) / 2;
    const moved = Number.isFinite(other) ? near(own, other) - own : 0;
    return ring.map(([x, y]) => [x + moved, y]);
  }

  function around(one) {
    const box = [Infinity, Infinity, -Infinity, -Infinity];
    for (const thing of one.things.map((i) => data.things[i])) {
      for (let step = 0; step <= 20; step++) {
        const spot = place(thing, one.times[0] + ((one.times[2] - one.times[0]) * step) / 20);
        if (!spot) continue;
        const [x, y, error] = [box[0] < Infinity ? near(spot[0], (box[0] + box[2]) / 2) : spot[0], spot[1], spot[2]];
        box[0] = Math.min(box[0], x - error);
        box[1] = Math.min(box[1], y - error);
        box[2] = Math.max(box[2], x + error);
        box[3] = Math.max(box[3], y + error);
      }
    }
    for (const [x, y] of one.region === null ? [] : data.regions[one.region].flatMap((ring) => beside(ring, (box[0] + box[2]) / 2))) {
      box.forEach((edge, i) => { box[i] = (i < 2 ? Math.min : Math.max)(edge, i % 2 ? y : x); });
    }
    return box[0] <= box[2] ? box : data.box;
  }

  function drawBar(view) {
    const drawn = each * stretch(middle), power = 10 ** Math.floor(Math.log10(140 / drawn));
    const length = [5, 2, 1].map((factor) => factor * power).find((size) => size * drawn <= 160) ?? power;
    make("path", { class: "grid scale", d: `M12 ${data.height - 12}h${(length * drawn).toFixed(1)}` }, view);
    const far = data.unit === "m" && length >= 1000 ? `${short(length / 1000)} km` : `${short(length)}${unit}`;
    make("text", { class: "axis", x: 12, y: data.height - 18 }, view, far);
  }

  function drawThing(thing, i, meets, view) {
    const spot = place(thing, now);
    if (!spot) return;
    const picked = data.happenings[chosen];
    const one = [picked, ...meets].find((some) => some && meets.includes(some) && some.things.includes(i));
    const [x, y] = at(spot);
    if (x < -50 || y < -50 || x > data.width + 50 || y > data.height + 50) return;
    const stroke = one ? ink(one) : "var(--quiet)";
    make("path", { class: "track", stroke, d: line(tail(thing, now, spot).map(at)) }, view);
    if (spot[2] * each > 1.5) make("circle", { class: "error", cx: x, cy: y, r: spot[2] * each, stroke }, view);
    const dot = make("circle", { class: "thing", cx: x, cy: y, r: one ? 4.5 : 3, fill: stroke }, view);
    make("title", {}, dot, thing.name);
    if (one) {
      const second = one.things.find((its) => its !== i);
      const other = second === undefined ? null : place(data.things[second], now);
      const west = other && (at(other)[0] > x || (at(other)[0] === x && i === one.things[0]));
      make("text", { class: "name", x: x + (west ? -8 : 8), y: y - 6, "text-anchor": west ? "end" : "start" }, view, thing.name);
    }
  }

  function drawWay(one, view) {
    for (const thing of one.things.map((i) => data.things[i])) {
      const spots = [place(thing, one.times[0])];
      thing.t.forEach((time, i) => one.times[0] < time && time < one.times[2] && spots.push([thing.x[i], thing.y[i]]));
      spots.push(place(thing, one.times[2]));
      make("path", { class: "past", stroke: ink(one), d: line(chained(spots.filter((spot) => spot)).map(at)) }, view);
    }
  }

  // Each region once, in the colour of who is in it; names of all only where there are few.
  function drawRegions(meets, view) {
    data.regions.forEach((given, i) => {
      const rings = given.map((ring) => beside(ring, centre));
      const one = meets.find((some) => some.region === i);
      const d = rings.map((ring) => line(ring.map(at)) + (ring.length > 2 ? "Z" : "")).join("");
      const colours = { stroke: one ? ink(one) : "var(--quiet)", fill: one ? ink(one) : "none" };
      make("path", { class: one ? "fence inside" : "fence", ...colours, d }, view);
      if (!one && data.regions.length > FEW) return;
      const [x, y] = rings.flat().map(at).reduce((top, spot) => (spot[1] < top[1] ? spot : top), [0, Infinity]);
      if (y === Infinity) return;
      const name = data.happenings.find((some) => some.region === i).facts[1];
      make("text", { class: "place", x, y: y - 5, "text-anchor": "middle" }, view, name);
    });
  }

  function drawMeeting(one, view) {
    if (one.things.length < 2) return;
    const spots = one.things.map((i) => place(data.things[i], now));
    if (spots.includes(null)) return;
    make("path", { class: "meeting", stroke: ink(one), d: line(chained(spots).map(at)) }, view);
    const closest = one.things.map((i) => place(data.things[i], one.times[1]));
    if (data.happenings[chosen] !== one || now < one.times[1] || closest.includes(null)) return;
    make("path", { class: "closest", stroke: ink(one), d: line(chained(closest).map(at)) }, view);
  }

  function list(meets) {
    const box = $("standing");
    if (!meets.length) return box.replaceChildren(make("p", {}, null, data.none));
    const table = make("table", {}), head = make("tr", {}, make("thead", {}, table)), body = make("tbody", {}, table);
    for (const name of data.head) make("th", { scope: "col" }, head, name);
    const first = meets.filter((one) => one === data.happenings[chosen]);
    const others = meets.filter((one) => one !== data.happenings[chosen]);
    for (const one of [...first, ...others].slice(0, 12)) {
      const row = make("tr", {}, body), named = make("th", { scope: "row" }, row);
      make("span", { class: "swatch", style: `color:${ink(one)}` }, named);
      named.append(one.facts[0]);
      for (const cell of one.facts.slice(1)) make("td", {}, row, cell);
      if (one.things.length < 2) continue;
      const [a, b] = one.things.map((i) => place(data.things[i], now));
      make("td", {}, row, a && b ? `${short(apart(a, b))}${unit}` : "");
    }
    box.replaceChildren(table);
  }

  function show(moment) {
    now = Math.max(0, Math.min(data.length, moment));
    const view = $("view"), meets = standing();
    view.replaceChildren();
    drawBar(view);
    if (chosen >= 0) drawWay(data.happenings[chosen], view);
    drawRegions(meets, view);
    meets.forEach((one) => drawMeeting(one, view));
    data.things.forEach((thing, i) => drawThing(thing, i, meets, view));
    list(meets);
    rows.forEach((row, i) => {
      if (meets.includes(data.happenings[i])) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    });
    $("scrub").value = Math.round((10000 * now) / (data.length || 1));
    $("scrub").setAttribute("aria-valuetext", clock(now));
    $("now").textContent = clock(now);
    const [first, last] = span, [left, right] = data.scale;
    const share = Math.max(0, Math.min(1, (now - first) / (last - first || 1)));
    $("cursor").setAttribute("transform", `translate(${left + share * (right - left)} 0)`);
  }
  const span = [
    Math.min(...data.happenings.map((one) => one.times[0])), Math.max(...data.happenings.map((one) => one.times[2])),
  ];

  // The next moment at which anything is shown: there may be days in between.
  function skip(moment) {
    if (data.things.some((thing) => place(thing, moment))) return moment;
    const later = data.things.map((thing) => thing.t[before(thing, moment) + 1]).filter((time) => time !== undefined);
    return later.length ? Math.min(...later) : data.length;
  }

  function play(on) {
    clearInterval(timer);
    const step = () => (now < data.length ? show(skip(now + 40 * +$("speed").value)) : play(false));
    timer = on ? setInterval(step, 40) : 0;
    $("standing").setAttribute("aria-live", on ? "off" : "polite");
    $("play").textContent = on ? "Pause" : "Play";
    $("play").setAttribute("aria-label", on ? "Pause" : "Play");
  }

  function toggle() {
    if (!timer && now >= data.length) show(0);
    play(!timer);
  }

  function choose(row) {
    chosen = Math.max(-1, Math.min(data.happenings.length - 1, row));
    look(chosen < 0 ? data.box : around(data.happenings[chosen]));
    if (chosen >= 0 && !$("events").contains(document.activeElement)) {
      $("events").scrollTop = rows[chosen].offsetTop - $("events").offsetTop - $("events").clientHeight / 2;
    }
    show(chosen < 0 ? now : data.happenings[chosen].times[1]);
  }

  rows.forEach((row, i) => row.addEventListener("click", () => { play(false); choose(i); }));
  $("play").addEventListener("click", toggle);
  $("whole").addEventListener("click", () => choose(-1));
  $("scrub").addEventListener("input", () => { play(false); show(($("scrub").value / 10000) * data.length); });
  $("speed").addEventListener("change", () => timer && play(true));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("button, input, select")) return;
    const next = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, Escape: -1 }[event.key];
    if (event.key === " ") toggle();
    else if (next === undefined) return;
    else { play(false); choose(next); }
    event.preventDefault();
  });
  const linked = Number.parseInt(location.hash.slice(1), 10); // page.html#3: the third of the list, close by
  look(data.box);
  if (linked >= 1) choose(linked - 1);
  else show(data.happenings[0].times[1]);
})();

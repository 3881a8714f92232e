"use strict";
// Jobs as they run. What comes from the server is only ever set as text, or drawn.
(() => {
  const $ = (id) => document.getElementById(id);
  const TRAIL = 40, MARKED = 8000, MOST = 200; // places of a thing, milliseconds of a mark, events in the list
  const SAMPLE = 4000; // places that say where most are
  const DEGREE = 111195;
  const jobs = [];
  let shown = 0, held = false, dirty = true, rates = [];

  function make(tag, text, parent, name) {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    if (name) made.className = name;
    if (parent) parent.append(made);
    return made;
  }
  const style = getComputedStyle(document.documentElement);
  const ink = (name) => style.getPropertyValue(`--${name}`).trim();
  const colour = (i) => ink(`p${((i % 5) + 5) % 5}`);
  const count = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
  const job = () => jobs[shown];

  function begin(message) {
    jobs.length = 0;
    $("job").replaceChildren();
    for (const one of message.jobs) {
      jobs.push({
        ...one, things: new Map(), marks: [], standing: new Map(), regions: new Map(), events: [], bad: [],
        box: empty(), known: empty(), bulk: null, view: null, totals: { rows: 0, answers: 0, rejects: 0 },
        histogram: [], counted: {}, state: {}, now: null, rates: [],
        places: new Map(one.fences.map((fence) => [fence.name, fence])),
      });
      const own = jobs[jobs.length - 1];
      for (const fence of own.fences) for (const ring of fence.rings) ring.forEach(([x, y]) => grow(own.known, x, y));
      for (const [, x, y] of own.sensors) grow(own.known, x, y);
      own.box = [...own.known];
      make("option", one.name, $("job"));
    }
    $("job").parentElement.hidden = jobs.length < 2;
    shown = Math.min(shown, jobs.length - 1);
    list();
    $("state").textContent = "Connected.";
  }

  const empty = () => [Infinity, Infinity, -Infinity, -Infinity];
  function grow(box, x, y) {
    if (x < box[0]) box[0] = x;
    if (y < box[1]) box[1] = y;
    if (x > box[2]) box[2] = x;
    if (y > box[3]) box[3] = y;
  }

  function step(message) {
    const own = jobs[message.job];
    if (!own) return;
    for (const [stream, key, x, y, error] of message.things) {
      const id = `${stream} ${key}`;
      let thing = own.things.get(id);
      if (!thing) {
        thing = { key, stream, trail: [] };
        own.things.set(id, thing);
        if (own.things.size > 5000) own.things.delete(own.things.keys().next().value);
      }
      thing.trail.push([x, y]);
      if (thing.trail.length > TRAIL) thing.trail.shift();
      thing.error = error;
      thing.seen = performance.now();
      grow(own.box, x, y);
    }
    for (const event of message.events) happen(own, event);
    for (const bad of message.rejects) {
      own.bad.unshift(`${bad.reason}: ${bad.stream} ${bad.key ?? ""} ${bad.detail}`);
      own.bad.length = Math.min(own.bad.length, 20);
    }
    if (message.now) {
      own.now = message.now;
      if (own.clock) own.behind = message.sent - own.clock[1] - (message.now[0] - own.clock[0]) / (1000 * own.clock[2]);
    }
    Object.assign(own, { totals: message.totals, histogram: message.histogram, counted: message.counted, state: message.state });
    own.rates.push([performance.now(), message.totals.rows, message.totals.answers]);
    while (own.rates.length > 2 && own.rates[0][0] < performance.now() - 5000) own.rates.shift();
    dirty = true;
  }

  function happen(own, event) {
    event.at = performance.now();
    own.number = (own.number ?? 0) + 1;
    event.colour = own.number;
    own.events.unshift(event);
    own.events.length = Math.min(own.events.length, MOST);
    if (event.region !== undefined) {
      if (event.ends) own.regions.delete(event.region);
      else if (event.hull) own.regions.set(event.region, event);
      return;
    }
    const pair = event.things.join(" ");
    if (event.change === 1) own.standing.set(pair, event);
    else if (event.change === -1) own.standing.delete(pair);
    own.marks.push(event);
    if (own.marks.length > 400) own.marks.shift();
  }

  // --- the list and the figures

  function list() {
    const own = job();
    if (!own) return;
    const rows = own.events.slice(0, 60).map((event) => {
      const row = make("li");
      row.style.borderLeftColor = colour(event.colour);
      make("time", moment(event.time), row);
      const sign = event.change === 1 ? "+ " : event.change === -1 ? "− " : "";
      row.append(sign + event.text + (event.facts ? ` · ${event.facts}` : ""));
      if (event.p !== null) row.append(` · probability ${Number(event.p.toPrecision(3))}`);
      return row;
    });
    $("events").replaceChildren(...rows);
    $("rejects").replaceChildren(...own.bad.map((text) => make("li", text)));
    const [first, last] = [own.rates[0], own.rates[own.rates.length - 1]];
    const passed = first && last && last[0] > first[0] ? (performance.now() - first[0]) / 1000 : 0;
    const rate = (i) => (passed ? count((last[i] - first[i]) / passed) : "0");
    const { candidates = 0, answers = 0, ...others } = own.counted;
    const pruned = Object.entries(others).filter(([name]) => name.startsWith("pruned")).reduce((sum, [, n]) => sum + n, 0);
    const facts = [
      ["rows a second", rate(1)], ["rows", count(own.totals.rows)], ["answers a second", rate(2)],
      ["answers", count(own.totals.answers)], ["rejects", count(own.totals.rejects)], ["things", count(own.things.size)],
      ...(own.behind === undefined ? [] : [["seconds behind", Math.max(0, own.behind).toFixed(2)]]),
      ...("state_rows" in own.state ? [["rows held", count(own.state.state_rows)]] : []),
      ...(own.state.state_bytes ? [["state, MB", count(own.state.state_bytes / 1e6)]] : []),
      ...(candidates ? [["candidate pairs", count(candidates)]] : []),
      ...(pruned ? [["pruned by bounds", `${count((100 * pruned) / candidates)} %`]] : []),
    ];
    const cells = facts.map(([name, value]) => {
      const cell = make("div");
      make("b", value, cell);
      cell.append(name);
      return cell;
    });
    $("figures").replaceChildren(...cells);
    $("now").textContent = own.now ? clock(...own.now) : "";
    const { outside } = bulk(own);
    $("all").hidden = !outside;
    $("all").textContent = `All, with ${count(outside)} outside`;
    $("events-title").textContent = `${own.operator}: as they happen`;
  }

  function clock(millis, stamped) {
    return stamped ? new Date(millis).toISOString().slice(0, 19).replace("T", " ") : String(millis / 1000);
  }
  const moment = (time) => (typeof time === "string" ? time.slice(0, 19).replace("T", " ") : time === null ? "" : String(time));

  // --- the map

  function look(own) {
    if (!(own.box[0] <= own.box[2])) return null;
    if (!own.view || own.whole) {
      own.view = fit(own, own.all ? own.box : bulk(own).box);
      own.whole = true;
    }
    return own.view;
  }

  // The box of fences, sensors and most places: one bad reading far off must not shrink the map to a dot. Beyond a tenth
  // at each end, four times the middle is within. Also how many things are outside now, or have been.
  function bulk(own) {
    const now = performance.now();
    if (own.bulk && own.bulk.things === own.things.size && now - own.bulk.at < 1000) return own.bulk;
    const places = [...own.things.values()].flatMap((thing) => thing.trail);
    const some = places.filter((_, i) => i % Math.ceil(places.length / SAMPLE) === 0);
    const [left, right] = middle(some.map(([x]) => x)), [low, high] = middle(some.map(([, y]) => y));
    const within = ([x, y]) => x >= left && x <= right && y >= low && y <= high;
    const box = [...own.known];
    places.filter(within).forEach(([x, y]) => grow(box, x, y));
    const outside = [...own.things.values()].filter((thing) => !thing.trail.every(within)).length;
    own.bulk = { box: box[0] <= box[2] ? box : own.box, outside, things: own.things.size, at: now };
    return own.bulk;
  }

  function middle(values) {
    values.sort((a, b) => a - b);
    const last = values.length - 1, low = values[Math.ceil(0.1 * last)], high = values[Math.floor(0.9 * last)];
    return high > low ? [low - 4 * (high - low), high + 4 * (high - low)] : [values[0], values[last]];
  }

  function fit(own, box) {
    const canvas = $("live");
    const squeeze = own.earth ? Math.max(0.05, Math.cos((((box[1] + box[3]) / 2) * Math.PI) / 180)) : 1;
    const wide = Math.max((box[2] - box[0]) * squeeze, 1e-9), high = Math.max(box[3] - box[1], 1e-9);
    const each = Math.min((canvas.width - 120) / wide, (canvas.height - 120) / high);
    return { x: (box[0] + box[2]) / 2, y: (box[1] + box[3]) / 2, each, squeeze };
  }

  // Two dots a pixel of the page, however wide the canvas is on it: letters keep their size.
  function brushOf(canvas) {
    const [wide, high] = [2 * canvas.clientWidth, 2 * canvas.clientHeight];
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
    return canvas.getContext("2d");
  }

  function draw() {
    const own = job(), canvas = $("live"), brush = brushOf(canvas);
    brush.clearRect(0, 0, canvas.width, canvas.height);
    if (!own) return;
    const view = look(own);
    if (!view) return;
    const at = ([x, y]) => [
      canvas.width / 2 + (x - view.x) * view.squeeze * view.each, canvas.height / 2 - (y - view.y) * view.each,
    ];
    const line = (points, close) => {
      brush.beginPath();
      points.forEach((point, i) => (i ? brush.lineTo(...at(point)) : brush.moveTo(...at(point))));
      if (close) brush.closePath();
    };
    const now = performance.now();
    own.marks = own.marks.filter((mark) => now - mark.at < MARKED);
    const lit = new Map(own.marks.filter((mark) => mark.fence).map((mark) => [mark.fence, mark]));
    for (const fence of own.fences) {
      const mark = lit.get(fence.name);
      brush.strokeStyle = mark ? colour(mark.colour) : ink("quiet");
      brush.globalAlpha = mark ? 1 : own.fences.length > 500 ? 0.25 : 0.55;
      brush.lineWidth = mark ? 4 : 1.2;
      for (const ring of fence.rings) {
        line(ring, ring.length > 2);
        brush.stroke();
        if (mark && ring.length > 2) {
          brush.fillStyle = colour(mark.colour);
          brush.globalAlpha = 0.18;
          brush.fill();
          brush.globalAlpha = 1;
        }
      }
    }
    const meter = own.earth ? view.each / DEGREE : view.each;
    brush.lineWidth = 1.6;
    for (const [key, x, y] of own.sensors) dot(brush, at([x, y]), 3, ink("quiet"), key);
    for (const region of own.regions.values()) {
      line(region.hull, true);
      brush.strokeStyle = brush.fillStyle = colour(region.region);
      brush.lineWidth = 4;
      brush.globalAlpha = 0.9;
      brush.stroke();
      brush.globalAlpha = 0.2;
      brush.fill();
    }
    for (const thing of own.things.values()) {
      const old = now - thing.seen > 60000 ? 0.35 : 1;
      brush.strokeStyle = ink("accent");
      brush.lineWidth = 2;
      brush.globalAlpha = 0.45 * old;
      line(thing.trail);
      brush.stroke();
      brush.globalAlpha = old;
      const spot = at(thing.trail[thing.trail.length - 1]);
      dot(brush, spot, 4, ink("accent"));
      if (thing.error * meter > 6) {
        brush.globalAlpha = 0.5;
        brush.beginPath();
        brush.arc(...spot, thing.error * meter, 0, 7);
        brush.stroke();
      }
    }
    brush.font = "600 20px system-ui, sans-serif";
    const named = new Map();
    brush.lineWidth = 2.5;
    for (const mark of own.standing.values()) drawWay(brush, placesOf(own, mark, at), mark, 0.6);
    for (const mark of [...own.marks].reverse()) drawMark(brush, own, mark, at, (MARKED - (now - mark.at)) / MARKED, named);
    brush.globalAlpha = 1;
    bar(brush, canvas, own, view);
  }

  function dot(brush, [x, y], size, fill) {
    brush.fillStyle = fill;
    brush.beginPath();
    brush.arc(x, y, size, 0, 7);
    brush.fill();
  }

  const placesOf = (own, mark, at) => mark.things
    .map(([stream, key]) => own.things.get(`${stream} ${key}`)).filter((thing) => thing)
    .map((thing) => [thing, at(thing.trail[thing.trail.length - 1])]);

  function drawWay(brush, found, mark, strength) {
    brush.strokeStyle = brush.fillStyle = colour(mark.colour);
    brush.globalAlpha = strength;
    if (found.length < 2 || mark.past) return;
    brush.beginPath();
    brush.moveTo(...found[0][1]);
    brush.lineTo(...found[1][1]);
    brush.stroke();
  }

  function drawMark(brush, own, mark, at, left, named) {
    const found = placesOf(own, mark, at);
    brush.lineWidth = 4;
    drawWay(brush, found, mark, Math.max(0.15, left));
    for (const [thing, spot] of found) {
      brush.beginPath();
      brush.arc(...spot, 10, 0, 7);
      brush.stroke();
      const name = `${thing.stream} ${thing.key}`, room = 11 * String(thing.key).length;
      const free = [...named.values()].every(([x, y]) => Math.abs(x - spot[0]) > room || Math.abs(y - spot[1]) > 22);
      if (named.size >= 12 || left < 0.4 || named.has(name) || !free) continue;
      brush.fillText(thing.key, spot[0] + 14, spot[1] - 8);
      named.set(name, spot);
    }
  }

  function bar(brush, canvas, own, view) {
    const meter = own.earth ? view.each / DEGREE : view.each;
    const power = 10 ** Math.floor(Math.log10(280 / meter));
    const size = [5, 2, 1].map((factor) => factor * power).find((one) => one * meter <= 320) ?? power;
    brush.strokeStyle = brush.fillStyle = ink("quiet");
    brush.lineWidth = 4;
    brush.beginPath();
    brush.moveTo(24, canvas.height - 24);
    brush.lineTo(24 + size * meter, canvas.height - 24);
    brush.stroke();
    brush.font = "22px system-ui, sans-serif";
    const text = own.earth ? (size >= 1000 ? `${size / 1000} km` : `${size} m`) : String(size);
    brush.fillText(text, 24, canvas.height - 36);
  }

  function bars() {
    const own = job(), canvas = $("histogram"), brush = brushOf(canvas);
    brush.clearRect(0, 0, canvas.width, canvas.height);
    const counts = own ? own.histogram : [], most = Math.max(1, ...counts);
    brush.fillStyle = ink("accent");
    const wide = (canvas.width - 40) / Math.max(1, counts.length);
    counts.forEach((n, i) => {
      const high = (Math.sqrt(n / most)) * (canvas.height - 62);
      brush.fillRect(20 + i * wide + 1, canvas.height - 30 - high, wide - 2, high);
    });
    brush.fillStyle = ink("quiet");
    brush.font = "20px system-ui, sans-serif";
    ["0", "0.5", "1"].forEach((text, i) => brush.fillText(text, 14 + (i * (canvas.width - 50)) / 2, canvas.height - 6));
    if (counts.length) brush.fillText(`most in a bar: ${count(most)}; heights by square root`, 20, 22);
  }

  function refresh() {
    if (!held && (dirty || (job() && job().marks.length))) {
      draw();
      if (dirty) {
        list();
        bars();
      }
      dirty = false;
    }
  }
  setInterval(refresh, 100);

  // --- what a reader does

  $("job").addEventListener("change", () => { shown = $("job").selectedIndex; dirty = true; });
  for (const [button, all] of [["whole", false], ["all", true]]) {
    $(button).addEventListener("click", () => { if (job()) { Object.assign(job(), { whole: true, all }); dirty = true; } });
  }
  $("busy").addEventListener("click", () => {
    const own = job(), box = empty();
    const about = own ? [...own.marks, ...own.standing.values()].flatMap((mark) => mark.things) : [];
    for (const [stream, key] of about) {
      for (const [x, y] of own.things.get(`${stream} ${key}`)?.trail.slice(-1) ?? []) grow(box, x, y);
    }
    if (!(box[0] <= box[2])) return;
    own.view = fit(own, box);
    own.whole = false;
    dirty = true;
  });
  $("hold").addEventListener("click", () => {
    held = !held;
    $("hold").setAttribute("aria-pressed", held);
    $("hold").textContent = held ? "Go on" : "Hold";
  });
  $("live").addEventListener("wheel", (event) => {
    const own = job(), view = own && look(own);
    if (!view) return;
    event.preventDefault();
    own.whole = false;
    view.each *= event.deltaY < 0 ? 1.2 : 1 / 1.2;
    dirty = true;
  }, { passive: false });
  let drag = null;
  $("live").addEventListener("pointerdown", (event) => { drag = [event.clientX, event.clientY]; });
  window.addEventListener("pointerup", () => { drag = null; });
  $("live").addEventListener("pointermove", (event) => {
    const own = job(), view = drag && own && look(own);
    if (!view) return;
    const canvas = $("live"), scale = canvas.width / canvas.clientWidth;
    own.whole = false;
    view.x -= ((event.clientX - drag[0]) * scale) / (view.each * view.squeeze);
    view.y += ((event.clientY - drag[1]) * scale) / view.each;
    drag = [event.clientX, event.clientY];
    dirty = true;
  });

  const source = new EventSource("feed");
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.type === "hello") begin(message);
    else if (message.type === "step") step(message);
    else if (message.type === "end") $("state").textContent = message.text;
  };
  source.onerror = () => { $("state").textContent = "No connection: the job has ended, or begins anew. Trying again."; };
})();

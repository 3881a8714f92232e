"use strict";
// Jobs as they run, drawn by Leaflet. What comes from the server is only ever set as text, or drawn.
(() => {
  const $ = (id) => document.getElementById(id), now = () => performance.now();
  const TRAIL = 40, MARKED = 8000, STALE = 60000, EVENTS = 60, NAMES = 12, THINGS = 5000; // milliseconds, and numbers
  const style = getComputedStyle(document.documentElement), ink = (name) => style.getPropertyValue(`--${name}`).trim();
  const near = (x, middle) => (middle === null ? x : x - 360 * Math.round((x - middle) / 360)); // longitudes side by side
  const colour = (i) => ink(`p${((i % 5) + 5) % 5}`), at = ([x, y]) => [y, x]; // Leaflet has latitude first
  const accent = { color: ink("accent"), weight: 1, fillOpacity: 1 }, quiet = { color: ink("quiet"), weight: 0.8, fill: false };
  let jobs = [], shown = 0, held = false;

  function make(tag, text, ...inside) {
    const made = document.createElement(tag);
    made.append(...(text === "" ? [] : [text]), ...inside);
    return made;
  }

  // A name that may be read from right to left, and must not turn what stands beside it.
  const apart = (name) => make("bdi", name ?? "");

  // Units that are no metres have no name.
  const Bar = L.Control.Scale.extend({ _updateMetric(most) {
    const whole = 10 ** Math.floor(Math.log10(most));
    this._updateScale(this._mScale, String(Number(whole.toPrecision(3))), whole / most);
  } });

  function opened(one) {
    const place = make("div", ""), faint = { ...quiet, opacity: one.fences.length > 500 ? 0.3 : 0.6, fillOpacity: 0.18 };
    $("live").append(place);
    const map = L.map(place, {
      crs: one.earth ? L.CRS.EPSG3857 : L.CRS.Simple, preferCanvas: true, attributionControl: false, zoomSnap: 0,
      minZoom: -60, maxZoom: one.earth ? 22 : 60, zoomAnimation: false,
    }).setView([0, 0], 1).addControl(new (one.earth ? L.Control.Scale : Bar)({ imperial: false }));
    const drawn = ({ rings }) => (rings.some((ring) => ring.length > 2) ? L.polygon : L.polyline)(rings.map((ring) => ring.map(at)), faint);
    const fences = new Map(one.fences.map((fence) => [fence.name, drawn(fence).addTo(map)]));
    for (const [, ...spot] of one.sensors) L.circleMarker(at(spot), { ...quiet, radius: 2 }).addTo(map);
    const own = { ...one, place, map, fences, faint, over: L.layerGroup().addTo(map), things: new Map(), touched: new Set(),
      marks: new Map(), lit: new Map(), regions: new Map(), events: [], bad: [], number: 0, fit: "most", last: null, middle: null };
    for (const touched of ["pointerdown", "wheel", "keydown"]) place.addEventListener(touched, () => { own.fit = null; }, true);
    return own;
  }

  function begin(message) {
    jobs.forEach((own) => own.map.remove());
    $("live").replaceChildren();
    jobs = message.jobs.map(opened);
    $("job").replaceChildren(...jobs.map((own) => make("option", own.name)));
    $("job").parentElement.hidden = jobs.length < 2;
    show(Math.min(shown, jobs.length - 1));
    $("state").textContent = "Connected. No rows have been answered yet.";
  }

  function show(number) {
    shown = $("job").selectedIndex = number;
    jobs.forEach((own, i) => { own.place.hidden = i !== shown; });
    jobs[shown].map.invalidateSize();
    refresh();
  }

  function step(own, message) {
    for (const [stream, key, x, y, error] of message.things) {
      const id = `${stream} ${key}`, thing = own.things.get(id) ?? { id, key, trail: [] };
      thing.trail = [...thing.trail.slice(1 - TRAIL), [y, x]];
      own.touched.add(Object.assign(thing, { error, seen: now() }));
      own.things.set(id, thing);
    }
    for (const thing of own.things.values()) {
      if (own.things.size <= THINGS) break;
      own.things.delete(thing.id);
      thing.layers?.remove();
    }
    message.events.forEach((event) => happen(own, event));
    own.events = [...message.events.reverse(), ...own.events].slice(0, EVENTS);
    own.bad = [...message.rejects, ...own.bad].slice(0, 20);
    if (own.middle !== message.boxes.middle) own.things.forEach((thing) => own.touched.add(thing));
    own.middle = message.boxes.middle;
    $("state").textContent = "Connected.";
    own.last = { ...message, clock: message.clock ?? own.last?.clock ?? "" };
  }

  function happen(own, event) {
    Object.assign(event, { at: now(), colour: event.region ?? own.number++ });
    own.regions.get(event.region)?.remove();
    if (event.hull && !event.ends) {
      const look = { color: colour(event.colour), weight: 2, fillOpacity: 0.2 };
      own.regions.set(event.region, L.polygon(event.hull.map(at), look).addTo(own.map));
    }
    if (event.region === undefined) own.marks.set(event.change === null ? event : event.things.join(" "), event);
    const fence = own.fences.get(event.fence);
    if (fence) own.lit.set(fence.setStyle({ color: colour(event.colour), weight: 2, opacity: 1, fill: true }), event.at);
  }

  // Where a thing is, and where it has been: over the edge of the map, if need be, each place beside the next.
  const spotOf = (own, thing) => [thing.trail.at(-1)[0], near(thing.trail.at(-1)[1], own.middle)];
  function wayOf(own, thing) {
    let beside = own.middle;
    return beside === null ? thing.trail : thing.trail.toReversed().map(([y, x]) => [y, beside = near(x, beside)]);
  }
  const about = (own, event) => event.things.map(([stream, key]) => own.things.get(`${stream} ${key}`)).filter((thing) => thing);

  function move(own, thing) {
    const spot = spotOf(own, thing);
    if (!thing.layers) {
      thing.way = L.polyline([], { ...accent, opacity: 0.5 });
      thing.dot = L.circleMarker(spot, { ...accent, radius: 2 }).bindTooltip(make("span", thing.key));
      thing.ring = L.circle(spot, { ...accent, opacity: 0.5, fill: false, radius: thing.error });
      thing.layers = L.featureGroup([thing.way, thing.ring, thing.dot]).addTo(own.map);
    }
    thing.way.setLatLngs(wayOf(own, thing));
    thing.ring.setLatLng(spot).setRadius(thing.error);
    thing.dot.setLatLng(spot).setStyle({ opacity: 1, fillOpacity: 1 });
  }

  function mark(own, event, named) {
    const things = about(own, event), [first, second] = things.map((thing) => spotOf(own, thing)), left = 1 - (now() - event.at) / MARKED;
    const look = { color: colour(event.colour), weight: 2, opacity: event.change === 1 ? 0.6 : Math.max(0.15, left), fill: false };
    if (second && !event.past) {
      L.polyline([first, [second[0], near(second[1], own.middle === null ? null : first[1])]], look).addTo(own.over);
    }
    for (const thing of left > 0 ? things : []) {
      const spot = spotOf(own, thing), point = own.map.latLngToLayerPoint(spot);
      const ring = L.circleMarker(spot, { ...look, radius: 5 }).addTo(own.over);
      if (named.length >= NAMES || left < 0.4 || named.some((other) => other.distanceTo(point) < 30)) continue;
      named.push(point);
      ring.bindTooltip(make("span", thing.key), { permanent: true, direction: "right" });
    }
  }

  function refresh() {
    const own = jobs[shown], named = [];
    if (!own?.last || held) return;
    own.touched.forEach((thing) => own.things.has(thing.id) && move(own, thing));
    own.touched.clear();
    for (const { seen, dot } of own.things.values()) if (now() - seen > STALE && dot.options.opacity === 1) dot.setStyle({ opacity: 0.35, fillOpacity: 0.35 });
    for (const [fence, since] of own.lit) if (now() - since > MARKED && own.lit.delete(fence)) fence.setStyle(own.faint);
    for (const [key, event] of own.marks) if (now() - event.at > MARKED && event.change !== 1) own.marks.delete(key);
    own.over.clearLayers();
    [...own.marks.values()].reverse().forEach((event) => mark(own, event, named));
    fit(own, own.last.boxes[own.fit]);
    const { figures, histogram, boxes, clock } = own.last, most = Math.max(1, ...histogram);
    $("figures").replaceChildren(...figures.map(([name, value]) => make("div", make("b", value), name)));
    $("events").replaceChildren(...own.events.map((event) => {
      const row = make("li", make("time", event.when), event.line);
      row.style.borderLeftColor = colour(event.colour);
      return row;
    }));
    $("rejects").replaceChildren(...own.bad.map(({ reason, stream, key, detail }) => make("li", `${reason}: `, apart(stream), " ", apart(key), " ", apart(detail))));
    $("histogram").replaceChildren(...histogram.map((n) => Object.assign(make("div", ""), { style: `height:${100 * Math.sqrt(n / most)}%` })));
    $("highest").textContent = `most in a bar: ${most.toLocaleString("en")}; heights by square root`;
    $("now").textContent = clock;
    $("all").hidden = !boxes.outside;
    $("all").textContent = `All, with ${boxes.outside} outside`;
    $("events-title").textContent = `${own.operator}: as they happen`;
  }

  function fit(own, box) {
    if (!box || String(box) === own.fitted) return;
    own.fitted = String(box);
    own.map.fitBounds([[box[1], box[0]], [box[3], box[2]]], { padding: [30, 30], maxZoom: own.earth ? 17 : 60, animate: false });
  }

  $("job").addEventListener("change", () => show($("job").selectedIndex));
  for (const [button, box] of [["whole", "most"], ["all", "all"]]) {
    $(button).addEventListener("click", () => { Object.assign(jobs[shown], { fit: box, fitted: "" }); refresh(); });
  }
  $("busy").addEventListener("click", () => {
    const own = jobs[shown], spots = [...own.marks.values()].flatMap((event) => about(own, event).map((thing) => spotOf(own, thing)));
    own.fit = null;
    if (spots.length) own.map.fitBounds(spots, { padding: [60, 60], maxZoom: own.earth ? 17 : 60 });
  });
  $("hold").addEventListener("click", () => {
    held = !held;
    $("hold").setAttribute("aria-pressed", held);
    $("hold").textContent = held ? "Go on" : "Hold";
  });

  const source = new EventSource("feed");
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.type === "hello") begin(message);
    else if (message.type === "step" && jobs[message.job]) step(jobs[message.job], message);
    else if (message.type === "end") $("state").textContent = message.text;
  };
  source.onerror = () => { $("state").textContent = "No connection: the job has ended, or begins anew. Trying again."; };
  setInterval(refresh, 250);
})();

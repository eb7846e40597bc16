"use strict";
// Maps of one or several runs: the same images at different places, with a common selection.

const COLORS = 8;
const SHAPES = ["dot", "ring", "triangle"];
const MAX_KINDS = COLORS * SHAPES.length - 1; // that have a color; the others are gray
const MAX_PICTURES = 60;

/** Return the current colors of the page: light, dark or printed. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    kinds: Array.from({ length: COLORS }, (_, i) => value(`--c${i}`)),
    other: value("--faint"), ink: value("--ink"), ground: value("--ground"),
  };
}

/** Thumbnails, each a part of a sheet. */
class Pictures {
  constructor(map) {
    this.map = map;
    this.images = map.sheets.map((uri) => {
      const image = new Image();
      image.src = uri;
      return image;
    });
    this.ready = Promise.all(this.images.map((image) => image.decode()));
  }

  draw(context, index, x, y, size) {
    const { side, across, each } = this.map;
    const place = index % each;
    context.imageSmoothingEnabled = side > 40;
    context.drawImage(this.images[Math.floor(index / each)],
      (place % across) * side, Math.floor(place / across) * side, side, side, x, y, size, size);
  }

  element(index, size, label) {
    const canvas = make("canvas", { width: size * 2, height: size * 2, role: "img", "aria-label": label });
    canvas.style.width = canvas.style.height = `${size}px`;
    this.ready.then(() => this.draw(canvas.getContext("2d"), index, 0, 0, size * 2));
    return canvas;
  }
}

/** One run's map on a canvas. */
class ScatterMap {
  constructor(state, places, title) {
    this.state = state;
    this.places = places;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": `${title}. Arrow keys move from image to image, + and − zoom, 0 shows all.` });
    this.reset();
    this.listen();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  reset() {
    const { x, y } = this.places;
    const middle = (values) => (Math.min(...values) + Math.max(...values)) / 2;
    this.view = { x: middle(x), y: middle(y), scale: 1 };
  }

  /** Return the place of an image in pixels. */
  at(index) {
    const unit = this.unit();
    return [
      this.width / 2 + (this.places.x[index] - this.view.x) * unit,
      this.height / 2 + (this.places.y[index] - this.view.y) * unit,
    ];
  }

  unit() {
    return ((Math.min(this.width, this.height) - 28) / 10000) * this.view.scale;
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    // On a map that is not zoomed, a finger scrolls the page.
    this.canvas.style.touchAction = this.view.scale > 1 || this.state.selecting ? "none" : "pan-y";
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    if (!this.width) return;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    const { state } = this, colors = palette();
    const kinds = state.kinds(this.places);
    const size = Math.min(9, 2.6 + this.view.scale * 0.7);
    const picture = Math.min(72, 20 + 5 * this.view.scale);
    const chosen = (index) => state.isChosen(index, kinds);
    // Images that are not chosen are drawn first, faintly.
    for (const above of [false, true]) {
      context.globalAlpha = above ? 0.9 : 0.12;
      for (const index of state.order) {
        if (chosen(index) !== above) continue;
        const [x, y] = this.at(index);
        if (x < -40 || y < -40 || x > this.width + 40 || y > this.height + 40) continue;
        if (state.asPictures) state.pictures.draw(context, index, x - picture / 2, y - picture / 2, picture);
        else mark(context, colors, kinds[index], x, y, size);
      }
    }
    context.globalAlpha = 1;
    if (state.current !== null) this.ring(context, colors, state.asPictures ? picture * 0.75 : size + 5);
    state.ondraw(this);
    if (this.box) {
      context.setLineDash([5, 4]);
      context.strokeStyle = colors.ink;
      context.strokeRect(...this.box);
    }
  }

  ring(context, colors, radius) {
    const [x, y] = this.at(this.state.current);
    for (const [width, color] of [[5, colors.ground], [2.5, colors.ink]]) {
      context.beginPath();
      context.arc(x, y, radius, 0, 7);
      context.lineWidth = width;
      context.strokeStyle = color;
      context.stroke();
    }
  }

  /** Return the image nearest to a place, within reach. */
  find(x, y, reach = 24) {
    let best = null, least = reach * reach;
    for (let index = 0; index < this.places.x.length; index++) {
      const [px, py] = this.at(index);
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [index, distance];
    }
    return best;
  }

  /** Return the next image in a direction: close, and not far to the side. */
  step(right, down) {
    if (this.state.current === null) return this.find(this.width / 2, this.height / 2, Infinity);
    const [x, y] = this.at(this.state.current);
    let best = this.state.current, least = Infinity;
    for (let index = 0; index < this.places.x.length; index++) {
      const [px, py] = this.at(index);
      const ahead = (px - x) * right + (py - y) * down;
      const aside = Math.abs((px - x) * down) + Math.abs((py - y) * right);
      if (ahead > 0.5 && aside <= ahead * 2 && ahead + 2 * aside < least) [best, least] = [index, ahead + 2 * aside];
    }
    return best;
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.unit();
    this.view.scale = Math.min(60, Math.max(1, this.view.scale * factor));
    const after = this.unit();
    if (this.view.scale === 1) this.reset();
    else {
      this.view.x += (x - this.width / 2) * (1 / before - 1 / after);
      this.view.y += (y - this.height / 2) * (1 / before - 1 / after);
    }
    this.draw();
  }

  /** Return all images within a rectangle of the screen. */
  inside([left, top, width, height]) {
    const right = left + width, bottom = top + height;
    return this.places.x.map((_, index) => index).filter((index) => {
      const [x, y] = this.at(index);
      return x >= Math.min(left, right) && x <= Math.max(left, right) && y >= Math.min(top, bottom) && y <= Math.max(top, bottom);
    });
  }

  listen() {
    const { canvas, state } = this;
    const fingers = new Map();
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let moved = false;
    canvas.addEventListener("wheel", (event) => {
      // Zoom with Ctrl or once the map has the focus; otherwise the wheel scrolls the page.
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), ...place(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
      moved = false;
      const [x, y] = place(event);
      if (event.shiftKey || state.selecting) this.box = [x, y, 0, 0];
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = place(event), before = fingers.get(event.pointerId);
      if (!before) {
        if (event.pointerType === "mouse" && !state.pinned) state.show(this.find(x, y), this);
        return;
      }
      if (Math.hypot(x - before[0], y - before[1]) < (moved ? 0 : 4)) return;
      moved = true;
      if (this.box) this.box = [this.box[0], this.box[1], x - this.box[0], y - this.box[1]];
      else if (fingers.size === 2) {
        const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
        const apart = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]);
        this.zoom(apart([x, y]) / Math.max(1, apart(before)), (x + other[0]) / 2, (y + other[1]) / 2);
      } else {
        this.view.x -= (x - before[0]) / this.unit();
        this.view.y -= (y - before[1]) / this.unit();
      }
      fingers.set(event.pointerId, [x, y]);
      this.draw();
    });
    const up = (event) => {
      if (!fingers.delete(event.pointerId)) return;
      if (this.box && moved) state.choose(this.inside(this.box));
      else if (!moved) state.pin(this.find(...place(event)), this);
      this.box = null;
      this.draw();
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointerleave", () => state.pinned || state.show(null, this));
    canvas.addEventListener("dblclick", (event) => this.zoom(2, ...place(event)));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    if (event.key in moves) this.state.pin(this.step(...moves[event.key]), this);
    else if (event.key === "+" || event.key === "=") this.zoom(1.5);
    else if (event.key === "-") this.zoom(1 / 1.5);
    else if (event.key === "0") this.zoom(0);
    else if (event.key === "Escape") this.state.clear();
    else return;
    event.preventDefault();
  }
}

/** Draw a mark in the color and shape of its kind; -1 stands for all other kinds. */
function mark(context, colors, kind, x, y, size) {
  context.fillStyle = kind < 0 ? colors.other : colors.kinds[kind % COLORS];
  context.strokeStyle = colors.ground;
  context.lineWidth = 0.8;
  context.beginPath();
  const shape = kind < 0 ? "dot" : SHAPES[Math.floor(kind / COLORS)];
  if (shape === "dot") context.arc(x, y, size, 0, 7);
  else if (shape === "ring") {
    context.arc(x, y, size - 0.6, 0, 7);
    context.strokeStyle = context.fillStyle;
    context.fillStyle = colors.ground;
    context.lineWidth = size * 0.55;
  } else {
    context.moveTo(x, y - size * 1.2);
    context.lineTo(x + size * 1.15, y + size);
    context.lineTo(x - size * 1.15, y + size);
    context.closePath();
  }
  context.fill();
  context.stroke();
}

/** Return the numbers below `count` shuffled, always alike: images come sorted by class, and those
 * drawn last are on top. */
function shuffled(count) {
  const places = [...Array(count).keys()];
  const hash = (n) => Math.imul(n ^ (n >>> 15), 0x2c1b3c6d) >>> 0;
  return places.sort((a, b) => hash(a + 1) - hash(b + 1));
}

/** The state that all maps share: coloring, current image, selection. */
class MapState {
  constructor(map, runs) {
    Object.assign(this, { map, runs, pictures: new Pictures(map), views: [] });
    Object.assign(this, { current: null, view: null, pinned: false, chosen: null, kind: null, asPictures: false, selecting: false });
    const hasGroups = map.maps.some((one) => one.group);
    const several = map.maps.length > 1;
    this.colorings = [...(map.labels ? ["label"] : []), ...(hasGroups ? ["group"] : []), ...(several ? ["run"] : [])];
    this.by = this.colorings[0] ?? "run";
    this.classes = this.ranked(map.labels || []);
    this.order = shuffled(map.names.length);
  }

  /** Number the kinds of values; if they are too many, the rarest get -1. */
  ranked(values) {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    const order = [...counts.keys()];
    // A few classes keep their order; of many, the most common are colored.
    order.sort(order.length > MAX_KINDS ? (a, b) => counts.get(b) - counts.get(a) : (a, b) => a - b);
    const rank = new Map(order.map((value, i) => [value, i < MAX_KINDS ? i : -1]));
    return { order: order.slice(0, MAX_KINDS), counts, kinds: values.map((value) => rank.get(value)), others: Math.max(0, order.length - MAX_KINDS) };
  }

  kinds(places) {
    if (this.by === "label") return this.classes.kinds;
    if (this.by === "run") return places.x.map(() => places.run % COLORS);
    return places.x.map((_, index) => (places.group?.[index] < MAX_KINDS ? places.group[index] : -1));
  }

  isChosen(index, kinds) {
    if (this.chosen) return this.chosen.has(index);
    return this.kind === null || kinds[index] === this.kind;
  }

  /** Show an image beside its place on one of the maps. */
  show(index, view) {
    if (index === this.current && view === this.view) return;
    Object.assign(this, { current: index, view });
    this.changed();
  }

  pin(index, view) {
    this.pinned = index !== null;
    this.show(index, view);
  }

  choose(indices) {
    this.chosen = indices.length ? new Set(indices) : null;
    this.kind = null;
    this.changed();
  }

  clear() {
    Object.assign(this, { chosen: null, kind: null, pinned: false, current: null });
    this.changed();
  }

  changed() {
    this.views.forEach((view) => view.draw());
    this.onchange();
  }
}

/** Draw controls, maps, the card of the current image, the legend and the selected images. */
function drawMaps(place, map, runs) {
  const state = new MapState(map, runs);
  const card = make("div", { class: "card", role: "status" });
  const legend = make("ul", { class: "kinds" });
  const strip = make("div", { class: "strip" });
  const label = (index) => (map.labels ? map.classes[map.labels[index]] : "");
  const describe = (index) => [map.names[index], label(index)].filter(Boolean).join(", ");

  function drawCard() {
    const index = state.current;
    card.hidden = index === null;
    if (card.hidden) return;
    const facts = [make("b", {}, map.names[index])];
    if (map.labels) facts.push(make("span", {}, label(index)));
    const { group } = state.view.places;
    if (group) {
      const size = group.filter((other) => other === group[index]).length;
      facts.push(make("span", {}, `group ${group[index] + 1}: ${size} image${size === 1 ? "" : "s"}`));
    }
    card.replaceChildren(state.pictures.element(index, state.view.width < 420 ? 96 : 144, describe(index)), ...facts);
    if (card.parentNode !== state.view.canvas.parentNode) state.view.canvas.after(card);
    placeCard(state.view);
  }

  /** Place the card beside its image, on the side with more room. */
  function placeCard(view) {
    if (view !== state.view || card.hidden) return;
    const [x, y] = view.at(state.current), away = 18;
    const left = x + away + card.offsetWidth < view.width ? x + away : x - away - card.offsetWidth;
    const within = (value, limit) => Math.max(4, Math.min(value, limit - 4));
    card.style.left = `${within(left, view.width - card.offsetWidth)}px`;
    card.style.top = `${within(y - card.offsetHeight / 2, view.height - card.offsetHeight)}px`;
  }

  /** Redraw only if the selection has changed: a pressed button must keep the focus. */
  let inStrip = null;
  function drawStrip() {
    if (state.chosen === inStrip) return;
    inStrip = state.chosen;
    if (!state.chosen) return strip.replaceChildren();
    const indices = [...state.chosen];
    const more = indices.length > MAX_PICTURES ? `; the first ${MAX_PICTURES}:` : "";
    const clear = make("button", { type: "button" }, "Clear");
    clear.addEventListener("click", () => {
      state.clear();
      state.views[0].canvas.focus();
    });
    const tiles = indices.slice(0, MAX_PICTURES).map((index) => {
      const button = make("button", { type: "button", class: "tile", title: describe(index) }, state.pictures.element(index, 52, describe(index)));
      button.addEventListener("click", () => state.pin(index, state.view || state.views[0]));
      return button;
    });
    strip.replaceChildren(make("p", {}, `${indices.length} images selected${more} `, clear), ...tiles);
  }

  /** Recreate the buttons only if their kind or color has changed; mark the pressed one. */
  let inLegend = null;
  function drawKinds() {
    if (inLegend !== state.by) makeKinds();
    inLegend = state.by;
    for (const button of legend.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.value) === state.kind));
    }
  }

  function makeKinds() {
    const entries = [];
    const entry = (kind, text) => {
      const canvas = make("canvas", { width: 28, height: 28, "aria-hidden": "true" });
      const context = canvas.getContext("2d");
      context.scale(2, 2);
      mark(context, palette(), kind, 7, 7, 4.6);
      const button = make("button", { type: "button", value: kind }, canvas, text);
      button.addEventListener("click", () => {
        state.chosen = null;
        state.kind = state.kind === kind ? null : kind;
        state.changed();
      });
      entries.push(make("li", {}, button));
    };
    if (state.by === "label") {
      state.classes.order.forEach((value, kind) => entry(kind, map.classes[value]));
      if (state.classes.others) entry(-1, `${state.classes.others} other classes`);
    } else if (state.by === "run") map.maps.forEach((one) => entry(one.run % COLORS, runs[one.run]));
    else {
      const largest = (numbers) => numbers.reduce((a, b) => Math.max(a, b), 0);
      const count = largest(map.maps.map((one) => largest(one.group ?? []))) + 1;
      for (let kind = 0; kind < Math.min(MAX_KINDS, count); kind++) entry(kind, `group ${kind + 1}`);
      if (count > MAX_KINDS) entry(-1, "smaller groups");
      if (map.maps.length > 1) entries.push(make("li", { class: "hint" }, "Each run has its own groups, numbered by size."));
    }
    legend.replaceChildren(...entries);
  }

  const names = { label: "class", group: "group", run: "run" };
  const choice = make("fieldset", {}, make("legend", {}, "Color by"), ...state.colorings.map((by) => {
    const input = make("input", { type: "radio", name: "by", value: by });
    input.checked = by === state.by;
    input.addEventListener("change", () => {
      Object.assign(state, { by, kind: null });
      state.changed();
    });
    return make("label", {}, input, names[by]);
  }));
  const check = (name, text) => {
    const input = make("input", { type: "checkbox" });
    input.addEventListener("change", () => {
      state[name] = input.checked;
      state.changed();
    });
    return make("label", {}, input, text);
  };
  const boxes = make("fieldset", {}, make("legend", {}, "Show"), check("asPictures", "pictures"), check("selecting", "select by dragging"));

  const panels = map.maps.map((one) => {
    const title = map.maps.length > 1 ? `Map of ${runs[one.run]}` : "Map";
    const view = new ScatterMap(state, one, title);
    state.views.push(view);
    const button = (text, name, action) => {
      const element = make("button", { type: "button", "aria-label": name, title: name }, text);
      element.addEventListener("click", action);
      return element;
    };
    const zoom = make("div", { class: "zoom" }, button("+", "Zoom in", () => view.zoom(1.6)), button("−", "Zoom out", () => view.zoom(1 / 1.6)), button("⤢", "Show all", () => view.zoom(0)));
    const caption = map.maps.length > 1 ? [make("figcaption", { class: `run c${one.run % 8}` }, runs[one.run])] : [];
    return make("figure", { class: "panel" }, ...caption, make("div", { class: "frame" }, view.canvas, zoom));
  });

  state.onchange = () => {
    drawCard();
    drawKinds();
    drawStrip();
  };
  state.ondraw = placeCard;
  const hint = make("p", { class: "hint" }, "Point at a dot or tap it to see its image. Drag to move the map, pinch or scroll (after a click on it) to zoom, Shift-drag to select. With the keyboard, focus the map and use the arrow keys, +, − and 0.");
  place.append(make("div", { class: "controls" }, ...(state.colorings.length > 1 ? [choice] : []), boxes), make("div", { class: "panels" }, ...panels), hint, legend, strip);
  state.pictures.ready.then(() => state.changed());
  for (const media of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(media).addEventListener("change", () => {
      inLegend = null;
      state.changed();
    });
  }
}

// What a page draws: each kind of chart becomes options of ECharts in the colours of the page. Tooltips are drawn on the
// canvas as plain text, so that no name from the data is ever markup.
"use strict";
const reportCharts = (() => {
  const WORDS = { fail: "✕ ", warn: "▲ ", unknown: "? ", ok: "✓ " };
  const LARGE = 3000;
  const NARROW = 520;

  const number = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (typeof value !== "number") return String(value);
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e9) return value.toLocaleString("en");
    return size !== 0 && (size < 1e-3 || size >= 1e7) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  };
  const day = (time) => new Date(time).toISOString().replace("T", " ").slice(0, 16);
  const shortTime = (time) => new Date(time).toISOString().slice(5, 16).replace("T", "\n");
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  const base = (c, narrow) => ({
    animation: false,
    color: c.series,
    textStyle: { fontFamily: "system-ui, -apple-system, Segoe UI, DejaVu Sans, sans-serif", color: c.text },
    aria: { enabled: false },
    grid: { left: narrow ? 8 : 14, right: narrow ? 16 : 26, top: 30, bottom: 36, containLabel: true },
  });
  const tip = (c, formatter, trigger = "item") => ({
    trigger,
    renderMode: "richText",
    confine: true,
    backgroundColor: c.card,
    borderColor: c.line,
    textStyle: { color: c.text, fontSize: 12 },
    formatter,
    axisPointer: { lineStyle: { color: c.muted } },
  });
  const axis = (c, given, more = {}) => ({
    type: given.type,
    name: given.name,
    nameLocation: "middle",
    nameGap: 26,
    nameTextStyle: { color: c.muted, fontSize: 12 },
    axisLabel: { color: c.muted, fontSize: 11, hideOverlap: true, formatter: given.type === "time" ? shortTime : number },
    axisLine: { lineStyle: { color: c.line } },
    axisTick: { lineStyle: { color: c.line } },
    splitLine: { lineStyle: { color: c.line, opacity: 0.6 } },
    ...more,
  });
  const tight = (c) => ({ min: "dataMin", max: "dataMax",
    axisLabel: { color: c.muted, fontSize: 11, hideOverlap: true, formatter: number, showMinLabel: false, showMaxLabel: false } });
  const legend = (c, names, more = {}) =>
    names.length > 1
      ? { type: "scroll", top: 0, left: 0, right: 0, textStyle: { color: c.text, fontSize: 12 }, inactiveColor: c.faint,
          pageTextStyle: { color: c.muted }, pageIconColor: c.text, pageIconInactiveColor: c.line, itemWidth: 16, data: names, ...more }
      : { show: false };

  function line(chart, c, state, narrow) {
    const time = chart.x.type === "time";
    const when = (value) => (time ? value * 1000 : value);
    const second = new Set(chart.second_series || []);
    const many = chart.series.length > 1;
    const series = chart.series.map((each, place) => ({
      name: each.name,
      type: chart.dots ? "scatter" : "line",
      data: each.data.map(([x, y]) => [when(x), y]),
      step: chart.step || false,
      showSymbol: !chart.dots && each.data.length < 40,
      symbolSize: chart.dots ? 6 : 5,
      lineStyle: { width: 1.8, type: second.has(place) ? "dashed" : "solid" },
      areaStyle: chart.area ? { opacity: 0.22 } : undefined,
      yAxisIndex: second.has(place) ? 1 : 0,
      connectNulls: false,
    }));
    if (series.length) {
      const lines = [
        ...(chart.limits || []).map((limit) => ({ yAxis: limit.value, ...mark(c, limit) })),
        ...(chart.x_lines || []).map((limit) => ({ xAxis: when(limit.value), ...mark(c, limit, "end") })),
      ];
      if (lines.length) series[0].markLine = { symbol: "none", silent: true, data: lines };
      const spans = (chart.spans || []).map((span) => [
        { xAxis: when(span.from), name: span.text ? WORDS[span.status] + cut(span.text, narrow ? 24 : 44) : "",
          itemStyle: { color: c[`${span.status}-fill`], opacity: 0.2 },
          label: { color: c.text, fontSize: 11, position: "insideTopLeft", offset: [0, 15 * (span.row || 0)], show: Boolean(span.text) } },
        { xAxis: when(span.to) },
      ]);
      if (spans.length) series[0].markArea = { silent: true, data: spans };
    }
    const told = (points) => {
      const list = Array.isArray(points) ? points : [points];
      if (!list.length) return "";
      const x = list[0].value[0];
      const rows = list.slice(0, 12).map((point) => `${many ? `${point.seriesName}: ` : ""}${number(point.value[1])}`);
      return [`${chart.x.name} ${time ? day(x) : number(x)}`, ...rows].join("\n");
    };
    const y = { scale: chart.y.type !== "log" && !chart.area, nameGap: narrow ? 36 : 44 };
    if (chart.y_range) [y.min, y.max] = chart.y_range;
    const named = chart.y.name && !narrow && chart.y.name.toLowerCase() !== chart.title.toLowerCase() ? chart.y.name : "";
    const axes = [axis(c, { ...chart.y, name: named }, y)];
    if (chart.second) axes.push(axis(c, { name: chart.second, type: "value" }, { min: 0, max: 1, splitLine: { show: false }, nameGap: 34 }));
    return {
      ...base(c, narrow),
      grid: { ...base(c, narrow).grid, left: named ? 34 : narrow ? 8 : 14 },
      legend: legend(c, chart.series.map((each) => each.name)),
      tooltip: tip(c, told, chart.dots ? "item" : "axis"),
      xAxis: axis(c, chart.x, { scale: true, splitLine: { show: false }, ...(time ? {} : tight(c)) }),
      yAxis: axes,
      dataZoom: [{ type: "inside", xAxisIndex: 0, zoomOnMouseWheel: "shift", moveOnMouseWheel: false, filterMode: "none" }],
      series,
    };
  }
  const mark = (c, limit, position = "insideEndTop") => ({
    lineStyle: { color: c[limit.status] || c.muted, type: "dashed", width: 1.2 },
    label: { formatter: limit.text, color: c[limit.status] || c.muted, position, rotate: 0, fontSize: 11 },
  });

  function bars(chart, c, state, narrow) {
    const names = chart.labels.map((label) => cut(label, narrow ? 18 : 34));
    const category = { type: "category", data: names, inverse: Boolean(chart.flat), axisTick: { show: false },
      axisLabel: { color: c.muted, fontSize: 11, interval: chart.flat ? 0 : "auto" }, axisLine: { lineStyle: { color: c.line } } };
    const value = axis(c, { type: "value", name: "" });
    const told = (points) => {
      const rows = points.map((point) => `${point.seriesName}: ${number(point.value)}`);
      return [cut(chart.labels[points[0].dataIndex], 120), ...rows].join("\n");
    };
    return {
      ...base(c, narrow),
      grid: { ...base(c, narrow).grid, top: chart.series.length > 1 ? 30 : 6, bottom: 8 },
      legend: legend(c, chart.series.map((each) => each.name)),
      tooltip: { ...tip(c, told, "axis"), axisPointer: { type: "shadow" } },
      xAxis: chart.flat ? value : category,
      yAxis: chart.flat ? category : value,
      series: chart.series.map((each) => ({ name: each.name, type: "bar", data: each.data, barMaxWidth: 26 })),
    };
  }

  function heat(chart, c, state, narrow) {
    const panel = chart.panels[state.panel || 0];
    const scaled = (value) => (chart.root ? Math.sqrt(Math.max(0, value)) : value);
    const back = (value) => (chart.root ? value * value : value);
    const cells = panel.cells.filter((cell) => cell[2] !== null).map(([x, y, v]) => [x, y, scaled(v), v]);
    let [low, high] = cells.reduce(([a, b], cell) => [Math.min(a, cell[2]), Math.max(b, cell[2])], [Infinity, -Infinity]);
    if (chart.range && chart.range[0] !== null) low = scaled(chart.range[0]);
    if (chart.range && chart.range[1] !== null) high = scaled(chart.range[1]);
    if (chart.diverging) [low, high] = [-Math.max(Math.abs(low), Math.abs(high)), Math.max(Math.abs(low), Math.abs(high))];
    if (!(low < high)) [low, high] = [low - 1e-9, low + 1e-9];
    const room = narrow ? 10 : 16;
    const side = (name, labels, down) => ({
      type: "category",
      data: labels.map((label) => cut(label, room)),
      name,
      nameLocation: "middle",
      nameGap: down ? 10 : 10,
      nameTextStyle: { color: c.muted, fontSize: 12 },
      inverse: down,
      position: down ? "left" : "bottom",
      axisTick: { show: false },
      axisLabel: { color: c.muted, fontSize: 10, interval: labels.length <= 40 && !narrow ? 0 : "auto",
        rotate: !down && labels.some((label) => label.length > 3) ? 90 : 0 },
      axisLine: { show: false },
      splitArea: { show: false },
    });
    return {
      ...base(c, narrow),
      grid: { left: 10, right: 12, top: 22, bottom: 62, containLabel: true },
      tooltip: tip(c, (point) => {
        const [x, y, , v] = point.value;
        return `${chart.y.name} ${cut(panel.y[y], 60)}\n${chart.x.name} ${cut(panel.x[x], 60)}\n${chart.value} ${number(v)}`;
      }),
      xAxis: { ...side(chart.x.name, panel.x, false), nameGap: panel.x.some((label) => label.length > 3) ? 76 : 24 },
      yAxis: { ...side(chart.y.name, panel.y, true), nameLocation: "start", nameGap: 6 },
      visualMap: { type: "continuous", dimension: 2, min: low, max: high, calculable: !narrow, orient: "horizontal", left: "center", bottom: 0,
        itemHeight: narrow ? 120 : 200, itemWidth: 12, formatter: (value) => number(back(value)), textStyle: { color: c.muted, fontSize: 11 },
        inRange: { color: chart.diverging ? c.diverging : c.heat } },
      series: [{ type: "heatmap", data: cells, progressive: 0, emphasis: { itemStyle: { borderColor: c.text, borderWidth: 1 } } }],
    };
  }

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  // Decodes a map once: points of each frame, where they lie, what they are called, how they are coloured.
  function decoded(chart) {
    if (!chart.decoded) {
      chart.decoded = chart.frames.map((frame) => ({
        ...frame,
        ids: new Int32Array(bytes(frame.ids)),
        names: chart.names[frame.names],
        layouts: frame.layouts.map((layout) => ({
          ...layout,
          x: new Uint16Array(bytes(layout.x)),
          y: new Uint16Array(bytes(layout.y)),
          rows: layout.rows ? new Int32Array(bytes(layout.rows)) : null,
        })),
        colours: frame.colours.map((each) => ({ ...each, index: new Uint8Array(bytes(each.index)) })),
      }));
    }
    return chart.decoded;
  }
  const called = (frame, point) => (frame.names ? `${frame.names[point]}  (row ${frame.ids[point]})` : `row ${frame.ids[point].toLocaleString("en")}`);

  function map(chart, c, state, narrow) {
    const frames = decoded(chart);
    const frame = frames[state.frame || 0];
    const layout = frame.layouts.find((each) => each.method === state.method) || frame.layouts[0];
    const colouring = frame.colours.find((each) => each.name === state.colour) || frame.colours[0];
    const [x0, x1, y0, y1] = layout.box;
    const at = (place) => [x0 + ((x1 - x0) * layout.x[place]) / 65535, y0 + ((y1 - y0) * layout.y[place]) / 65535];
    const where = new Map();
    const classes = (colouring ? colouring.classes : ["rows"]).map((name) => ({ name, data: [], points: [] }));
    for (let place = 0; place < layout.x.length; place += 1) {
      const point = layout.rows ? layout.rows[place] : place;
      const one = classes[colouring ? colouring.index[point] : 0];
      one.data.push(at(place));
      one.points.push(point);
      where.set(point, place);
    }
    const total = layout.x.length;
    const size = total > 20000 ? 2.2 : total > 4000 ? 3.2 : total > 800 ? 4.5 : 7;
    const palette = colouring && colouring.ordered ? c.bands : c.series;
    const series = classes.map((one, place) => ({
      name: one.name,
      type: "scatter",
      data: one.data,
      points: one.points,
      large: total > LARGE,
      largeThreshold: 1,
      progressive: 0,
      symbolSize: size,
      itemStyle: { color: one.name === "other" ? c.faint : palette[place % palette.length], opacity: total > 4000 ? 0.6 : 0.8 },
    }));
    const wanted = (state.search || "").trim().toLowerCase();
    const found = [];
    if (wanted) {
      for (const [point, place] of where) {
        const name = frame.names ? frame.names[point].toLowerCase() : "";
        if (name.includes(wanted) || String(frame.ids[point]) === wanted) found.push([point, place]);
        if (found.length >= 200) break;
      }
    }
    const ringed = (name, points, colour, symbol) => ({
      name, type: "scatter", z: 5, symbol, symbolSize: 12,
      data: points.map(([point, place, why]) => ({ value: at(place), point, why })),
      itemStyle: { color: "transparent", borderColor: colour, borderWidth: 2 },
      label: { show: true, position: "right", color: c.text, fontSize: 11, backgroundColor: c.card, padding: [1, 3], borderRadius: 3,
        formatter: (item) => cut(frame.names ? frame.names[item.data.point] : `row ${frame.ids[item.data.point]}`, 24) },
      labelLayout: { hideOverlap: true },
    });
    const witnesses = frame.witnesses.filter(([point]) => where.has(point)).map(([point, why]) => [point, where.get(point), why]);
    if (witnesses.length) series.push(ringed("named by a verdict", witnesses, c.fail, "diamond"));
    if (found.length) series.push(ringed("found", found, c.text, "circle"));
    // Frames of one layout share their view, so that a step through them shows what moves.
    const views = frames.map((each) => each.layouts.find((other) => other.method === layout.method)).filter(Boolean).map((each) => each.view);
    const view = [0, 1, 2, 3].map((edge) => (edge % 2 ? Math.max : Math.min)(...views.map((each) => each[edge])));
    const blank = { type: "value", scale: true, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false },
      axisLine: { show: true, onZero: false, lineStyle: { color: c.line } } };
    return {
      ...base(c, narrow),
      grid: { left: 6, right: 6, top: 34, bottom: 6 },
      legend: legend(c, series.map((each) => each.name), { icon: "circle", itemWidth: 10 }),
      tooltip: tip(c, (item) => {
        const point = item.data && item.data.point !== undefined ? item.data.point : series[item.seriesIndex].points[item.dataIndex];
        const why = item.data && item.data.why ? `\n${item.data.why}` : "";
        const of = colouring ? `\n${colouring.name}: ${colouring.classes[colouring.index[point]]}` : "";
        return `${cut(called(frame, point), 100)}${of}${why}`;
      }),
      xAxis: { ...blank, min: view[0], max: view[1] },
      yAxis: { ...blank, min: view[2], max: view[3] },
      dataZoom: [{ type: "inside", xAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "shift" },
        { type: "inside", yAxisIndex: 0, filterMode: "none", zoomOnMouseWheel: "shift" }],
      series,
    };
  }

  const KINDS = { line, bars, heat, map };
  const options = (chart, colours, state, width) => KINDS[chart.kind](chart, colours, state, width < NARROW);
  function height(chart, width) {
    if (chart.kind === "map") return Math.min(560, Math.max(320, width * 0.8));
    if (chart.kind === "bars") return chart.flat ? 48 + chart.labels.length * (chart.series.length > 1 ? 26 : 20) : 260;
    if (chart.kind === "heat") {
      const most = Math.max(...chart.panels.map((panel) => panel.y.length));
      return Math.min(Math.max(260, most * 15 + 150), Math.max(360, width * 1.05));
    }
    return 270;
  }
  return { options, height, decoded };
})();

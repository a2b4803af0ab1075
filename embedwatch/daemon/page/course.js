// How the numbers of a Space went: one chart for each that a check judges, with its limits.
import { BASE, Chart, tooltip } from "./charts.js";
import { html } from "./html.js";
import { clock, count, number } from "./words.js";

const MOST = 12;

export function Courses({ course, verdicts }) {
  const judged = new Map();
  for (const verdict of verdicts) if (verdict.measurement && !judged.has(verdict.measurement)) judged.set(verdict.measurement, verdict);
  const shown = course.series
    .filter((each) => judged.has(each.name) && each.values.filter((value) => value !== null).length > 1)
    .sort((one, other) => rank(judged.get(one.name)) - rank(judged.get(other.name)))
    .slice(0, MOST);
  if (!shown.length) return html`<p class="muted">A course begins with the second window.</p>`;
  return html`<div class="charts">
    ${shown.map((each) => html`<${Line} key=${each.key} each=${each} course=${course} verdict=${judged.get(each.name)} />`)}
  </div>`;
}

const rank = (verdict) => ["fail", "warn", "ok", "unknown"].indexOf(verdict.status);

function Line({ each, course, verdict }) {
  const bySteps = course.steps.every((step) => step !== null);
  const known = each.values.map((value, place) => [bySteps ? course.steps[place] : course.times[place] * 1000, value]).filter(([, value]) => value !== null);
  const values = known.map(([, value]) => value);
  const last = values[values.length - 1];
  const limit = verdict.limit || {};
  const limits = [["warn", limit.warn], ["fail", limit.fail]].filter(([, value]) => value !== null && value !== undefined);
  const told = `${each.title}: ${count(known.length, "window")}, now ${number(last, each.unit)}, lowest ${number(Math.min(...values))}, highest ${number(Math.max(...values))}`;
  const option = (colour) => ({
    ...BASE,
    grid: { left: 8, right: 12, top: 12, bottom: 6, containLabel: true },
    tooltip: {
      trigger: "axis",
      ...tooltip(colour, ([point]) => `${bySteps ? `step ${point.value[0].toLocaleString("en")}` : clock(point.value[0] / 1000)}\n${number(point.value[1], each.unit)}`),
    },
    xAxis: {
      type: bySteps ? "value" : "time",
      min: "dataMin",
      max: "dataMax",
      axisLabel: { color: colour.muted, fontSize: 11, hideOverlap: true },
      axisLine: { lineStyle: { color: colour.line } },
      splitLine: { show: false },
    },
    yAxis: {
      type: "value",
      scale: true,
      min: ({ min }) => nice(Math.min(min, ...limits.slice(0, 1).map(([, value]) => value)), false),
      max: ({ max }) => nice(Math.max(max, ...limits.slice(0, 1).map(([, value]) => value)), true),
      splitNumber: 3,
      axisLabel: { color: colour.muted, fontSize: 11, showMinLabel: false, showMaxLabel: false, formatter: (value) => number(value) },
      splitLine: { lineStyle: { color: colour.line } },
    },
    series: [
      {
        type: "line",
        data: known,
        showSymbol: known.length < 15,
        symbolSize: 5,
        lineStyle: { color: colour.accent, width: 2 },
        itemStyle: { color: colour.accent },
        markLine: {
          silent: true,
          symbol: "none",
          data: limits.map(([status, value]) => ({
            yAxis: value,
            lineStyle: { color: colour[status], type: "dashed", width: 1.5 },
            label: { formatter: status, color: colour[status], position: status === "fail" ? "insideStartTop" : "insideEndTop", fontSize: 11 },
          })),
        },
      },
    ],
  });
  return html`<figure>
    <figcaption title=${each.help}><strong>${each.title}</strong> ${number(last, each.unit)}${each.healthy && html`<div class="muted small">healthy: ${each.healthy}</div>`}</figcaption>
    <${Chart} option=${option} mark=${`${each.key} ${course.times[course.times.length - 1]} ${known.length}`} label=${told} size="low" />
  </figure>`;
}

// A little air around what is drawn.
function nice(value, up) {
  const air = Math.abs(value) * 0.05 || 0.05;
  return up ? value + air : value >= 0 && value < 1 ? Math.max(0, value - air) : value - air;
}

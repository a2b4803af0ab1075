// One Space: what was found, the map, the courses, all numbers.
import { Courses } from "./course.js";
import { html } from "./html.js";
import { SpaceMap } from "./map.js";
import { Badge, Counts, Finding, Strip, Witnesses } from "./small.js";
import { GRAVITY, ago, clock, count, nameOf, number, segmentOf, worst } from "./words.js";

export function SpaceView({ state, set }) {
  const { detail, status } = state;
  if (detail === null) return html`<p class="muted" aria-busy="true">Reading…</p>`;
  if (detail.gone) {
    return html`<section class="card notice"><h2>There is no such Space</h2><p>It was never here, or was not heard of for too long. <a href="#/">All Spaces</a></p></section>`;
  }
  const { space, verdicts = [], exhibits = [], snapshot } = detail.told;
  const graver = verdicts.filter((each) => each.status === "fail" || each.status === "warn");
  graver.sort((one, other) => GRAVITY.indexOf(one.status) - GRAVITY.indexOf(other.status));
  const rest = verdicts.filter((each) => !graver.includes(each));
  return html`
    <${Head} told=${detail.told} now=${status.time} />
    <section>
      <h2>Findings <span class="muted">${graver.length}</span></h2>
      ${!graver.length && html`<p class="card calm"><${Badge} status=${rest.length ? worst(detail.told.counts) : "unknown"} words="nothing found" /> ${verdicts.length ? "No check warns or fails here." : "No window was judged yet."}</p>`}
      <div class="findings">
        ${graver.map((each) => html`<${Finding} key=${each.check} verdict=${{ ...each, told: ` · since ${clock(each.since)} (${ago(each.since, status.time)})` }} />`)}
      </div>
      ${exhibits.length > 0 && html`<h3 class="apart">Rows that speak for it</h3>`}
      <div class="witnesses">${exhibits.map((each) => html`<${Witnesses} key=${each.name} exhibit=${each} />`)}</div>
    </section>
    <div class="columns wide">
      <section class="card">
        <h2>${detail.map && detail.map.reference ? "Reference against now" : "Map of the last window"}</h2>
        <${SpaceMap} map=${detail.map} kind=${state.layout} choose=${(layout) => set({ layout })} />
      </section>
      <section class="card">
        <h2>Other checks <span class="muted">${rest.length}</span></h2>
        <${Others} verdicts=${rest} />
      </section>
    </div>
    <section class="card">
      <h2>Course</h2>
      <${Courses} course=${detail.course} verdicts=${verdicts} />
    </section>
    ${snapshot && html`<section class="card"><h2>All numbers</h2><${Numbers} course=${detail.course} /></section>`}
  `;
}

function Head({ told, now }) {
  const { space } = told;
  const parts = [
    told.role,
    told.dimension && count(told.dimension, "dimension"),
    `${count(told.rows, "row")} in the last window`,
    told.step !== null && `step ${told.step.toLocaleString("en")}`,
    told.time === null ? "no window closed yet" : `judged ${ago(told.time, now)}`,
    told.reference ? `compared with the reference ${told.reference.fingerprint} of ${count(told.reference.rows, "row")}` : "no reference",
  ];
  return html`<section class="head">
    <nav aria-label="Breadcrumb"><a href="#/">All Spaces</a></nav>
    <div class="row">
      <h1 id="title" tabindex="-1">${nameOf(space)} ${segmentOf(space) && html`<span class="segment">${segmentOf(space)}</span>`}</h1>
      <${Badge} status=${worst(told.counts)} />
    </div>
    <p class="muted">${parts.filter(Boolean).join(" · ")}</p>
    <div class="row start"><${Counts} counts=${told.counts} /><div class="windows"><${Strip} statuses=${told.statuses} /></div></div>
  </section>`;
}

function Others({ verdicts }) {
  if (!verdicts.length) return html`<p class="muted">None.</p>`;
  const sorted = [...verdicts].sort((one, other) => GRAVITY.indexOf(one.status) - GRAVITY.indexOf(other.status));
  return html`<ul class="others">
    ${sorted.map(
      (each) => html`<li key=${each.check}>
        <details>
          <summary><${Badge} status=${each.status} /> ${each.title} <span class="muted small">${number(each.value, each.unit)}</span></summary>
          <dl>${(each.explained || []).map(([topic, sentence]) => html`<dt>${topic}</dt><dd>${sentence}</dd>`)}</dl>
        </details>
      </li>`,
    )}
  </ul>`;
}

function Numbers({ course }) {
  const last = course.times.length - 1;
  const rows = course.series.filter((each) => each.values[last] !== null);
  return html`<details class="numbers">
    <summary>${count(rows.length, "number")} of the last window beside the one before</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="All numbers">
      <table>
        <thead><tr><th scope="col">measurement</th><th scope="col">now</th><th scope="col">before</th><th scope="col">median of all</th><th scope="col">healthy</th></tr></thead>
        <tbody>
          ${rows.map(
            (each) => html`<tr key=${each.key}>
              <th scope="row" title=${each.help}>${each.key.replaceAll("_", " ")}</th>
              <td>${number(each.values[last], each.unit)}</td>
              <td>${number(each.values[last - 1])}</td>
              <td>${number(median(each.values))}</td>
              <td class="muted">${each.healthy}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </details>`;
}

function median(values) {
  const known = values.filter((value) => value !== null).sort((one, other) => one - other);
  return known.length ? known[Math.floor((known.length - 1) / 2)] : null;
}

// All Spaces: what needs a look first, then the list, then what changed.
import { html } from "./html.js";
import { Badge, Counts, Finding, Sparkline, Strip } from "./small.js";
import { GRAVITY, MARKS, MEANINGS, ago, clock, count, fullName, hashOf, keyOf, nameOf, number, segmentOf, worst } from "./words.js";

const MOST_FINDINGS = 6;
const MOST_CHANGES = 12;
const MOST_SPACES = 100;

export function Overview({ state, set }) {
  const { spaces, verdicts, changes, failures, status } = state;
  if (!spaces.length) return html`<${Empty} />`;
  const now = status.time;
  return html`
    <${Summary} spaces=${spaces} verdicts=${verdicts} chosen=${state.chosen} set=${set} />
    <${Findings} verdicts=${verdicts} now=${now} />
    <${Spaces} state=${state} set=${set} now=${now} />
    <div class="columns">
      <${Changes} changes=${changes} now=${now} />
      <${Failures} failures=${failures} now=${now} />
    </div>
  `;
}

function Empty() {
  const command = `curl --json '{"vectors": [[0.1, 0.2], [0.3, 0.1]]}' \\\n  ${new URL("api/v1/ingest/my-model/pooled", document.baseURI)}`;
  return html`<section class="card notice">
    <h2>Nothing was sent yet</h2>
    <p>The daemon runs and waits. The first rows make a Space, and its first verdicts are here when its window closes.</p>
    <pre tabindex="0" aria-label="A command that sends two rows">${command}</pre>
    <p>
      From Python: <code>embedwatch.watch(model, name="encoder", sinks=["daemon:${location.origin}"])</code>. Checkpoints
      and files are looked at when the configuration names them under <code>sources</code>.
    </p>
  </section>`;
}

function Summary({ spaces, chosen, set }) {
  const counts = Object.fromEntries(GRAVITY.map((status) => [status, 0]));
  for (const each of spaces) counts[worst(each.counts)] += 1;
  return html`<section aria-label="Spaces by their gravest verdict" class="tiles">
    ${GRAVITY.map(
      (status) => html`<button
        type="button"
        class="tile ${status} ${counts[status] ? "" : "none"}"
        aria-pressed=${chosen === status ? "true" : "false"}
        onClick=${() => set({ chosen: chosen === status ? null : status })}
      >
        <span class="mark" aria-hidden="true">${MARKS[status]}</span>
        <span class="big">${counts[status]}</span>
        <span><strong>${status}</strong><br /><span class="small">${MEANINGS[status]}</span></span>
      </button>`,
    )}
  </section>`;
}

function Findings({ verdicts, now }) {
  if (!verdicts.length) {
    return html`<section class="card calm">
      <h2>Findings</h2>
      <p><${Badge} status="ok" words="nothing found" /> No check warns or fails anywhere.</p>
    </section>`;
  }
  const shown = verdicts.slice(0, MOST_FINDINGS);
  return html`<section>
    <h2>Findings <span class="muted">${verdicts.length}</span></h2>
    <div class="findings">
      ${shown.map((verdict) => {
        const told = ` · since ${clock(verdict.since)} (${ago(verdict.since, now)})`;
        const link = html`in <a href=${hashOf(verdict.space)}>${fullName(verdict.space)}</a>`;
        return html`<${Finding} key=${keyOf(verdict.space) + verdict.check} verdict=${{ ...verdict, told }} link=${link} />`;
      })}
    </div>
    ${verdicts.length > shown.length &&
    html`<p class="muted">${verdicts.length - shown.length} more: open a Space to see all that was found there.</p>`}
  </section>`;
}

function Spaces({ state, set, now }) {
  const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (each) =>
    (!state.chosen || worst(each.counts) === state.chosen) &&
    words.every((word) => fullName(each.space).toLowerCase().includes(word));
  const found = state.spaces.filter(fits);
  found.sort((one, other) => GRAVITY.indexOf(worst(one.counts)) - GRAVITY.indexOf(worst(other.counts)));
  const shown = found.slice(0, MOST_SPACES);
  const grave = new Map();
  for (const verdict of state.verdicts) {
    const key = keyOf(verdict.space);
    if (!grave.has(key)) grave.set(key, verdict);
  }
  return html`<section class="card">
    <div class="row">
      <h2>Spaces <span class="muted">${found.length}${found.length < state.spaces.length && ` of ${state.spaces.length}`}</span></h2>
      <label class="find"
        ><span class="hidden">Find a Space by its name</span
        ><input type="search" placeholder="Find a Space" value=${state.query} onInput=${(event) => set({ query: event.target.value })}
      /></label>
    </div>
    ${!found.length && html`<p class="muted">No Space fits. <button type="button" class="link" onClick=${() => set({ query: "", chosen: null })}>Show all</button></p>`}
    <ul class="spaces">
      ${shown.map((each) => html`<${SpaceRow} key=${keyOf(each.space)} each=${each} verdict=${grave.get(keyOf(each.space))} now=${now} />`)}
    </ul>
    ${found.length > shown.length && html`<p class="muted">${found.length - shown.length} more; find them by name.</p>`}
  </section>`;
}

function SpaceRow({ each, verdict, now }) {
  const status = worst(each.counts);
  const course = each.course;
  const last = course ? course.values[course.values.length - 1] : null;
  const age = each.time === null ? "no window closed yet" : `${ago(each.time, now)}${each.fresh ? "" : ", before a restart"}`;
  const evidence = `${count(each.rows, "row")}${each.step === null ? "" : ` · step ${each.step.toLocaleString("en")}`}`;
  return html`<li class="space">
    <div class="who">
      <${Badge} status=${status} />
      <div>
        <a href=${hashOf(each.space)}>${nameOf(each.space)}</a>
        ${segmentOf(each.space) && html`<span class="segment">${segmentOf(each.space)}</span>`}
        <div class="muted small">${evidence} · ${age}</div>
      </div>
    </div>
    <div class="what small">${verdict ? verdict.reason : html`<span class="muted"><${Counts} counts=${each.counts} /></span>`}</div>
    <div class="course">
      <${Sparkline} course=${course} status=${status} />
      ${course && html`<span class="small"><span class="muted">${course.title}</span> ${number(last)}</span>`}
    </div>
    <div class="windows"><${Strip} statuses=${each.statuses} /></div>
  </li>`;
}

function Changes({ changes, now }) {
  return html`<section class="card">
    <h2>What changed</h2>
    ${!changes.length && html`<p class="muted">No verdict has turned.</p>`}
    <ol class="changes">
      ${changes.slice(0, MOST_CHANGES).map(
        (each) => html`<li>
          <time class="muted small" datetime=${new Date(each.time * 1000).toISOString()}>${clock(each.time)}, ${ago(each.time, now)}</time>
          <div>
            <${Badge} status=${each.status} /> <strong>${each.title}</strong>${" "}
            ${each.before ? `was ${each.before}` : "at the first look"}${" "}in <a href=${hashOf(each.space)}>${fullName(each.space)}</a>
          </div>
          <div class="small">${each.reason}</div>
        </li>`,
      )}
    </ol>
  </section>`;
}

function Failures({ failures, now }) {
  const told = failures.filter((each) => each.message);
  if (!told.length) return null;
  return html`<section class="card">
    <h2>Refused or failed lately</h2>
    <ol class="changes">
      ${told.slice(0, MOST_CHANGES).map(
        (each) => html`<li>
          <time class="muted small" datetime=${new Date(each.time * 1000).toISOString()}>${clock(each.time)}, ${ago(each.time, now)}</time>
          <div><strong>${each.reason.replaceAll("_", " ")}</strong> <span class="muted">${fullName(each.space)}</span></div>
          <div class="small">${each.message}</div>
        </li>`,
      )}
    </ol>
  </section>`;
}

// Templates that Preact draws: html`<p>${text}</p>`. Text is never read as markup.
import htm from "./htm.js";
import { h } from "./preact.js";

export const html = htm.bind(h);

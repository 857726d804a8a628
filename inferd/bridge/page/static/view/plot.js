/** A line over time, drawn as a vector picture with its numbers in text. */

import { Component } from "../vendor/preact.mjs";
import { html } from "./html.js";

const WIDTH = 240;
const HEIGHT = 48;

/**
 * Return the points of a line, for `polyline`.
 * @param {number[]} values oldest first
 * @param {number} most value at the upper edge
 * @param {number} places that the whole width has
 * @returns {string}
 */
export function points(values, most, places) {
  const step = WIDTH / Math.max(1, places - 1);
  const from = places - values.length;
  return values
    .map((value, number) => {
      const y = HEIGHT - 1 - (most > 0 ? Math.min(1, value / most) : 0) * (HEIGHT - 2);
      return `${((from + number) * step).toFixed(1)},${y.toFixed(1)}`;
    })
    .join(" ");
}

/**
 * Return how much a counter grew in each second between two looks.
 * @param {{ at: number }[]} looks
 * @param {(look: any) => number} read
 * @returns {number[]}
 */
export function rates(looks, read) {
  return looks.slice(1).map((look, number) => {
    const before = /** @type {{ at: number }} */ (looks[number]);
    const seconds = look.at - before.at;
    return seconds > 0 ? Math.max(0, read(look) - read(before)) / seconds : 0;
  });
}

/**
 * @typedef {{ title: string, values: number[], places: number, of?: string, say: (value: number) => string }} Props
 * @extends {Component<Props>}
 */
export class Plot extends Component {
  render() {
    const { title, values, places, say } = this.props;
    const highest = Math.max(0, ...values);
    const now = `${say(values.at(-1) ?? 0)}${this.props.of ?? ""}`;
    return html`
      <figure class="plot">
        <figcaption>${title} <strong>${now}</strong></figcaption>
        <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${`${title}: now ${now}, at most ${say(highest)}`}>
          <polyline points=${points(values, Math.max(highest, 1), places)} />
        </svg>
        <span class="hint">at most ${say(highest)}</span>
      </figure>
    `;
  }
}

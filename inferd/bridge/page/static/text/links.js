/** What may be opened from a text that a model wrote: addresses of the web, once a person agrees. */

/** Characters of an address that is offered to be opened. */
export const MAX_ADDRESS = 2048;

/**
 * Return the address that a link may open, or nothing.
 * @param {string} text
 * @returns {string | null} normalised, so that what is shown is what is opened
 */
export function openable(text) {
  if (text.length > MAX_ADDRESS) return null;
  try {
    const url = new URL(text);
    const isWeb = url.protocol === "https:" || url.protocol === "http:";
    return isWeb && !url.username && !url.password ? url.href : null;
  } catch {
    return null;
  }
}

// What elements show, without a document.
export const STATIC = new URL("../../../../../inferd/bridge/page/static/", import.meta.url);

/** Return all elements below one, itself among them. */
export function all(node) {
  if (Array.isArray(node)) return node.flatMap(all);
  if (node === null || typeof node !== "object") return [];
  return [node, ...all(node.props.children)];
}

/** Return the text of an element. */
export function text(node) {
  if (Array.isArray(node)) return node.map(text).join("");
  if (node === null || node === undefined || typeof node === "boolean") return "";
  return typeof node === "object" ? text(node.props.children) : String(node);
}

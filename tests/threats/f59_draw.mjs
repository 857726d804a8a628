// Print the elements that texts become.
const [, , directory, ...texts] = process.argv;
const { renderBlock } = await import(`${directory}/text/markdown.js`);
for (const text of texts) console.log(JSON.stringify(renderBlock(text)));

/** What the page uses of marked. */
export class Marked {
  constructor(options: { gfm: boolean });
  lexer(text: string): Record<string, any>[];
}

/** What the page uses of htm. */
declare const htm: {
  bind(make: Function): (strings: TemplateStringsArray, ...values: any[]) => any;
};
export default htm;

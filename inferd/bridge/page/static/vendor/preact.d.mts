/** What the page uses of preact. */
export interface VNode {
  type: unknown;
  props: Record<string, any>;
}
export class Component<P = {}, S = {}> {
  constructor(props?: P);
  props: P;
  state: S;
  setState(change: Partial<S> | ((state: S, props: P) => Partial<S>), then?: () => void): void;
  forceUpdate(): void;
  render(): any;
  shouldComponentUpdate?(props: P, state: S): boolean;
  componentDidMount?(): void;
  componentDidUpdate?(props: P, state: S): void;
  componentWillUnmount?(): void;
}
export function h(type: unknown, props?: Record<string, any> | null, ...children: any[]): VNode;
export function render(node: VNode, parent: Element): void;
export function createRef(): { current: any };

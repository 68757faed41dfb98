import { act, createElement } from 'react';
import { createRoot } from 'react-dom/client';

// runHook runs a hook in a component. now has what the hook returned last; set runs it with another argument.
export function runHook<A, T>(hook: (argument: A) => T, argument: A) {
  (globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;
  const seen: T[] = [];
  function Component({ given }: { given: A }) {
    seen.push(hook(given));
    return null;
  }
  const root = createRoot(document.createElement('div'));
  const set = (given: A) => act(() => root.render(createElement(Component, { given })));
  set(argument);
  return {
    get now(): T {
      return seen.at(-1)!;
    },
    set,
    end: () => act(() => root.unmount()),
  };
}

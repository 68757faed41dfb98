import { useSyncExternalStore } from 'react';
import { Icon } from './icon';

interface Message {
  id: number;
  text: string;
}

let messages: Message[] = [];
let next = 1;
const subscribers = new Set<() => void>();
const publish = (m: Message[]) => {
  messages = m;
  for (const s of subscribers) s();
};

// toast says for 5 s what has been done. Errors stay where they happen, never here.
export function toast(text: string) {
  const id = next++;
  publish([...messages.slice(-2), { id, text }]);
  setTimeout(() => publish(messages.filter((m) => m.id !== id)), 5_000);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (f) => {
      subscribers.add(f);
      return () => subscribers.delete(f);
    },
    () => messages,
  );
  return (
    <div role="status" className="pointer-events-none fixed right-4 bottom-4 z-50 flex flex-col items-end gap-2">
      {shown.map((m) => (
        <div
          key={m.id}
          className="flex max-w-sm items-center gap-2 rounded-md border border-line bg-raised px-3 py-2 wrap-anywhere shadow-lg">
          <Icon name="check" className="text-ok" />
          {m.text}
        </div>
      ))}
    </div>
  );
}

import { menu } from '../menu';
import { Dialog } from '../ui/dialog';

const keys: [string, string][] = [
  ['/', 'Search in the list'],
  ['Ctrl K', 'Search for anything, or go to a page'],
  ['↑ ↓ Home End', 'Move between the rows of a table'],
  ['Enter', 'Open the row'],
  ['Esc', 'Close a dialog or menu'],
  ['?', 'Show this help'],
];

export default function Help({ onClose }: { onClose: () => void }) {
  const go = menu.map((i): [string, string] => [`g ${i.key}`, `Go to: ${i.label}`]);
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="grid grid-cols-[9rem_1fr] gap-y-2">
        {[...keys, ...go].map(([k, what]) => (
          <div key={k} className="contents">
            <dt>
              <kbd className="rounded border border-line px-1.5 py-0.5 font-sans text-sm">{k}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

import { type ReactNode, useEffect, useId, useRef, useState } from 'react';
import { ApiError } from '../api/client';
import { Failure, IconButton } from './basic';
import { Form, Submit, TextField } from './form';

// Dialog is a modal <dialog>. It is open as long as it is rendered. mayClose is asked before Esc, the
// cross or a click beside it close it; a dialog with stays cannot be closed at all. React passes the Esc of a
// dialog within it on to this one, which stays open then.
export function Dialog({
  title,
  onClose,
  mayClose,
  children,
  wide,
  stays,
}: {
  title: ReactNode;
  onClose: () => void;
  mayClose?: () => boolean;
  children: ReactNode;
  wide?: boolean;
  stays?: boolean;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  const label = useId();
  useEffect(() => {
    const dialog = ref.current;
    if (!dialog) return;
    const before = document.activeElement;
    show(dialog);
    return () => {
      dialog.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const close = () => {
    if (!stays && (!mayClose || mayClose())) onClose();
  };
  // Browsers close a dialog without asking if Esc is pressed twice, or before anything was clicked. While
  // this component is mounted the dialog must be open, so it is opened again.
  const closed = () => {
    if (!ref.current || ref.current.open) return;
    show(ref.current);
    close();
  };
  return (
    <dialog
      ref={ref}
      aria-labelledby={label}
      onClose={(e) => {
        if (e.target === e.currentTarget) closed();
      }}
      onCancel={(e) => {
        if (e.target !== e.currentTarget || !e.cancelable) return;
        e.preventDefault();
        close();
      }}
      className={`max-h-[calc(100dvh-2rem)] w-[calc(100%-2rem)] flex-col overflow-clip rounded-lg border border-line bg-raised text-text shadow-xl open:flex ${wide ? 'max-w-3xl' : 'max-w-lg'}`}>
      <header className="flex shrink-0 items-center gap-2 border-b border-line py-2 pr-2 pl-4">
        <h2 id={label} className="min-w-0 flex-1 truncate text-lg font-semibold">
          {title}
        </h2>
        {!stays && <IconButton icon="cross" label="Close" onClick={close} />}
      </header>
      <div data-body className="min-h-0 overflow-y-auto p-4">
        {children}
      </div>
    </dialog>
  );
}

function show(dialog: HTMLDialogElement) {
  const page = document.documentElement;
  // The width of the page's scrollbar, or of the room that is kept for it.
  if (!document.querySelector('dialog:modal')) page.style.setProperty('--scrollbar', `${window.innerWidth - page.clientWidth}px`);
  dialog.showModal();
  // The browser would focus the button that closes it.
  dialog.querySelector<HTMLElement>('[data-body] :is(input, select, textarea):not([type=checkbox])')?.focus();
}

// ConfirmDialog names what an action does, and destroys unless it is harmless. With typed, that text must be entered first. It closes
// only after the server has confirmed. It cannot be done before it is ready.
export function ConfirmDialog({
  title,
  children,
  action,
  typed,
  ready = true,
  harmless,
  onClose,
  run,
}: {
  title: ReactNode;
  children: ReactNode;
  action: string;
  typed?: string;
  ready?: boolean;
  harmless?: boolean;
  onClose: () => void;
  run: () => Promise<void>;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [text, setText] = useState('');
  const submit = async () => {
    if (busy || !ready || (typed !== undefined && text !== typed)) return;
    setBusy(true);
    setError(null);
    try {
      await run();
      onClose();
    } catch (e) {
      setError(e instanceof ApiError ? e : new Error(String(e)));
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose} mayClose={() => !busy}>
      <Form onSubmit={submit}>
        <div className="flex flex-col gap-2 break-words">{children}</div>
        {typed !== undefined && (
          <TextField
            label={
              <>
                Enter <b>{typed}</b> to confirm
              </>
            }
            value={text}
            onChange={setText}
          />
        )}
        {error !== null && <Failure error={error} />}
        <Submit
          danger={!harmless}
          label={action}
          busy={busy}
          disabled={!ready || (typed !== undefined && text !== typed)}
          onCancel={onClose}
        />
      </Form>
    </Dialog>
  );
}

import { type ComponentProps, type ReactNode, useEffect, useId, useState } from 'react';
import { ApiError, serverNow, throughProvider } from '../api/client';
import { exact, momentOf, relative } from '../lib/time';
import { Icon, type IconName } from './icon';

const buttonStyles = {
  primary: 'bg-accent text-on-accent hover:bg-accent-hover border-transparent',
  plain: 'bg-surface text-text hover:bg-hover border-line',
  quiet: 'text-muted hover:text-text hover:bg-hover border-transparent',
  danger: 'bg-surface text-bad hover:bg-bad-soft border-bad', // it destroys something
};

export type ButtonKind = keyof typeof buttonStyles;

// buttonClass gives a link the look of a button.
export function buttonClass(kind: ButtonKind = 'plain', size: 'sm' | 'md' = 'md') {
  return `inline-flex items-center justify-center gap-1.5 rounded-md border font-medium whitespace-nowrap select-none ${
    size === 'md' ? 'h-8 px-3' : 'h-6 px-2 text-sm'
  } ${buttonStyles[kind]}`;
}

interface ButtonProps extends Omit<ComponentProps<'button'>, 'disabled'> {
  kind?: ButtonKind;
  size?: 'sm' | 'md';
  icon?: IconName;
  busy?: boolean;
  disabled?: boolean;
  why?: string | null; // why it cannot be used, which disables it
}

// Button says in why it is disabled. It stays in the order of focus, so that the reason can be read.
export function Button({
  kind = 'plain',
  size = 'md',
  icon,
  busy,
  why,
  disabled,
  className = '',
  children,
  onClick,
  type = 'button',
  ...rest
}: ButtonProps) {
  const off = Boolean(why) || disabled || busy;
  const reason = useId();
  return (
    <>
      <button
        type={type}
        aria-disabled={off || undefined}
        aria-busy={busy || undefined}
        aria-describedby={why ? reason : undefined}
        title={why ?? undefined}
        className={`${buttonClass(kind, size)} ${off ? 'opacity-55' : ''} ${className}`}
        onClick={(e) => {
          if (off) e.preventDefault();
          else onClick?.(e);
        }}
        {...rest}>
        {icon && <Icon name={icon} />}
        {children}
      </button>
      {why && (
        <span id={reason} className="sr-only">
          {why}
        </span>
      )}
    </>
  );
}

export function IconButton({ icon, label, className = '', ...rest }: { icon: IconName; label: string } & ComponentProps<'button'>) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      {...rest}
      className={`inline-flex size-7 items-center justify-center rounded-md text-muted hover:bg-hover hover:text-text ${className}`}>
      <Icon name={icon} />
    </button>
  );
}

const tones = {
  ok: 'bg-ok-soft text-ok',
  warn: 'bg-warn-soft text-warn',
  bad: 'bg-bad-soft text-bad',
  info: 'bg-accent-soft text-accent',
  plain: 'bg-hover text-muted',
};
const toneIcons: Record<keyof typeof tones, IconName | null> = { ok: 'check', warn: 'warn', bad: 'cross', info: 'clock', plain: null };
export type Tone = keyof typeof tones;

// Status is a state by icon and word; its colour is only a third signal.
export function Status({ tone, icon, children }: { tone: Tone; icon?: IconName; children: ReactNode }) {
  const shown = icon ?? toneIcons[tone];
  return (
    <span className={`inline-flex h-5 items-center gap-1 rounded-md px-1.5 text-sm font-medium whitespace-nowrap ${tones[tone]}`}>
      {shown && <Icon name={shown} className="size-3" />}
      {children}
    </span>
  );
}

// One timer for all relative times of the page.
const tickers = new Set<() => void>();
setInterval(() => tickers.forEach((f) => f()), 10_000);

// useNow is the server's time in milliseconds, renewed every 10 s.
export function useNow(): number {
  const [now, setNow] = useState(serverNow);
  useEffect(() => {
    const tick = () => setNow(serverNow());
    tickers.add(tick);
    return () => {
      tickers.delete(tick);
    };
  }, []);
  return now;
}

// Time shows how long ago a time was, or how far it is, and the exact time on hover. In a table it is as wide as it
// gets, so that the columns do not move when it changes.
export function Time({ at, none = '–' }: { at: string | null | undefined; none?: string }) {
  const ticked = useNow();
  if (!at) return <span className="text-muted">{none}</span>;
  const time = Date.parse(at);
  const now = time > ticked ? Math.max(ticked, serverNow()) : ticked; // it may have come since the last tick
  return (
    <time dateTime={at} title={exact(at)} className="whitespace-nowrap tabular-nums [td_&]:inline-block [td_&]:min-w-[10ch]">
      {relative(time, now)}
    </time>
  );
}

// Moment shows a time by the clock, for a state that begins or ends then, and the exact time on hover.
export const Moment = ({ at }: { at: string }) => (
  <time dateTime={at} title={exact(at)} className="whitespace-nowrap tabular-nums">
    {momentOf(at, useNow())}
  </time>
);

// CopyButton copies text, and says so for a moment. onCopied is called only if the browser copied it.
export function CopyButton({
  text,
  label,
  children,
  onCopied,
  className = '',
}: {
  text: string | (() => string);
  label: string;
  children?: ReactNode;
  onCopied?: () => void;
  className?: string;
}) {
  const [state, setState] = useState<'' | 'done' | 'failed'>('');
  useEffect(() => {
    if (!state) return;
    const timer = setTimeout(() => setState(''), 1500);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = async () => {
    const value = typeof text === 'function' ? text() : text;
    const done = await toClipboard(value);
    setState(done ? 'done' : 'failed');
    if (done) onCopied?.();
  };
  const icon = state === 'done' ? 'check' : state === 'failed' ? 'warn' : 'copy';
  return (
    <button
      type="button"
      onClick={copy}
      aria-label={children ? undefined : label}
      title={label}
      className={
        children
          ? `${buttonClass('plain')} ${className}`
          : `inline-flex size-5 shrink-0 items-center justify-center rounded text-muted hover:bg-hover hover:text-text ${className}`
      }>
      <Icon name={icon} className={children ? '' : 'size-3.5'} />
      {children}
      <span role="status" className="sr-only">
        {state === 'done' ? 'Copied' : state === 'failed' ? 'Copying failed' : ''}
      </span>
    </button>
  );
}

// toClipboard also works on plain http, where the browser has no clipboard interface.
async function toClipboard(text: string): Promise<boolean> {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    // Not allowed: try the old way.
  }
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'sr-only';
  (document.querySelector('dialog[open]') ?? document.body).append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

// Id shows a whole identifier, which can be copied.
export function Id({ value, className = '' }: { value: string; className?: string }) {
  return (
    <span className={`inline-flex max-w-full items-center gap-1 ${className}`}>
      <code className="font-mono text-sm wrap-anywhere">{value}</code>
      <CopyButton text={value} label={`Copy ${value}`} />
    </span>
  );
}

// Code is a block of text to copy. It scrolls by itself, except in a dialog, whose body scrolls. What is copied is the text, or exact where the text
// was made easier to read.
export function Code({
  text,
  label,
  exact: original,
  wrap,
  onCopied,
}: {
  text: string;
  label: string;
  exact?: string;
  wrap?: boolean;
  onCopied?: () => void;
}) {
  return (
    <div className="relative rounded-md border border-line bg-bg">
      {/* A scrolling region must take the focus, so that keys can scroll it. */}
      <pre
        tabIndex={0}
        aria-label={label}
        className={`max-h-96 overflow-auto p-3 in-[dialog]:max-h-none pr-10 font-mono text-sm ${wrap ? 'break-all whitespace-pre-wrap' : 'whitespace-pre'}`}>
        {text}
      </pre>
      <CopyButton text={original ?? text} label={`Copy: ${label}`} onCopied={onCopied} className="absolute top-2 right-2 bg-bg" />
    </div>
  );
}

// Panel is a bordered part of a page with a title.
export function Panel({
  title,
  actions,
  children,
  className = '',
  flush,
}: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  className?: string;
  flush?: boolean;
}) {
  return (
    <section className={`min-w-0 rounded-lg border border-line bg-surface ${className}`}>
      {(title || actions) && (
        <header className="flex min-h-11 flex-wrap items-center gap-2 border-b border-line px-4 py-1.5">
          {typeof title === 'string' ? <h2 className="text-base font-semibold">{title}</h2> : title}
          {actions && <div className="ml-auto flex flex-wrap items-center justify-end gap-2">{actions}</div>}
        </header>
      )}
      <div className={flush ? '' : 'p-4'}>{children}</div>
    </section>
  );
}

// Empty says what would be here, and how to get it.
export function Empty({ icon, title, children, action }: { icon: IconName; title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className="flex flex-col items-center gap-2 px-4 py-12 text-center">
      <span className="mb-1 flex size-9 items-center justify-center rounded-lg border border-line text-muted">
        <Icon name={icon} />
      </span>
      <p className="font-semibold">{title}</p>
      {children && <p className="max-w-md text-muted">{children}</p>}
      {action && <div className="mt-2 flex gap-2">{action}</div>}
    </div>
  );
}

// Notice warns of the state of a record.
export const Notice = ({ children }: { children: ReactNode }) => (
  <p className="flex gap-2 rounded-md border border-warn bg-warn-soft px-3 py-2">
    <Icon name="warn" className="mt-0.5 text-warn" />
    <span className="min-w-0">{children}</span>
  </p>
);

// Warnings shows what the server warns of, beside what it did.
export function Warnings({ texts }: { texts: string[] }) {
  return texts.map((text, i) => (
    <p key={i} className="flex gap-2 rounded-md bg-warn-soft px-3 py-2">
      <Icon name="warn" className="mt-0.5 text-warn" />
      <span className="min-w-0 break-words">{text}</span>
    </p>
  ));
}

// Failure shows the error of a call. It never looks like a success.
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const e = error instanceof ApiError ? error : null;
  // The message of several problems is that of the first, which the list has as well. A message about a
  // field, such as "must be a date", does not name it.
  const many = e !== null && e.fields.length > 1;
  const subject = e && /^\p{Ll}/u.test(e.message) ? e.fields.find((f) => f.message === e.message)?.field : undefined;
  const listed = e?.fields.filter((f) => many || f.message !== e.message) ?? [];
  return (
    <div role="alert" className="flex gap-2 rounded-md border border-bad bg-bad-soft px-3 py-2 text-text">
      <Icon name="warn" className="mt-0.5 text-bad" />
      <div className="min-w-0 flex-1 break-words">
        <p>
          {many ? (
            `${e.fields.length} problems. Nothing was changed.`
          ) : (
            <>
              {subject && (
                <>
                  <code className="font-mono text-sm">{subject}</code>:{' '}
                </>
              )}
              {e?.message ?? String(error)}
            </>
          )}
        </p>
        {listed.length > 0 && (
          <ul className="mt-1 list-disc pl-4">
            {listed.map((f) => (
              <li key={f.field + f.message}>
                {f.field && (
                  <>
                    <code className="font-mono text-sm break-all">{f.field}</code>:{' '}
                  </>
                )}
                {f.message}
              </li>
            ))}
          </ul>
        )}
        {e?.code === 'reauthentication_required' && (
          <a href={throughProvider(true)} className="link">
            Sign in once more
          </a>
        )}
        {e?.retryAfter && <p className="text-sm text-muted">Try again in {e.retryAfter} s.</p>}
        {e?.requestId && (
          <p className="mt-1 text-sm text-muted">
            Request <Id value={e.requestId} />
          </p>
        )}
      </div>
      {retry && (
        <Button size="sm" onClick={retry}>
          Try again
        </Button>
      )}
    </div>
  );
}

// Skeleton stands for text that is being loaded; give it the size of that text.
export function Skeleton({ className = 'h-4 w-24' }: { className?: string }) {
  return <span aria-hidden="true" className={`skeleton inline-block align-top ${className}`} />;
}

// Details is a list of names and values.
export function Details({ rows }: { rows: [ReactNode, ReactNode][] }) {
  return (
    <dl className="grid grid-cols-[minmax(6rem,min(11rem,35%))_minmax(0,1fr)] gap-x-4 gap-y-2">
      {rows.map(([name, value], i) => (
        <div key={i} className="contents">
          <dt className="text-muted">{name}</dt>
          <dd className="min-w-0 break-words">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// Page is the heading and body of a screen. All screens have the same width.
export function Page({ title, actions, children }: { title: ReactNode; actions?: ReactNode; children: ReactNode }) {
  return (
    <div className="mx-auto flex w-full max-w-[1280px] flex-col gap-4 p-4 md:p-6">
      <header className="flex min-h-8 flex-wrap items-center gap-x-3 gap-y-2">
        <h1 className="min-w-0 text-xl font-semibold break-words">{title}</h1>
        <div className="ml-auto flex flex-wrap items-center gap-2">{actions}</div>
      </header>
      {children}
    </div>
  );
}

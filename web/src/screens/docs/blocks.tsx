import { Link } from '@tanstack/react-router';
import type { Block, Span } from '../../api/docs';
import { plain } from '../../lib/docsearch';
import { Code } from '../../ui/basic';

// Blocks shows blocks of the documentation. All of their text is text, never markup.
export function Blocks({ blocks }: { blocks: Block[] }) {
  return blocks.map((b, i) => <One key={i} block={b} />);
}

function One({ block: b }: { block: Block }) {
  switch (b.kind) {
    case 'heading': {
      const Heading = b.level === 2 ? 'h2' : 'h3';
      return (
        <Heading id={b.anchor} className={`scroll-mt-16 pt-2 font-semibold break-words ${b.level === 2 ? 'text-lg' : 'text-base'}`}>
          <Spans spans={b.spans} />
        </Heading>
      );
    }
    case 'paragraph':
      return (
        <p className="break-words">
          <Spans spans={b.spans} />
        </p>
      );
    case 'code':
      return <Code text={(b.text ?? '').replace(/\n$/, '')} label={b.language === 'sh' ? 'Commands' : 'Example'} />;
    case 'list': {
      const List = b.ordered ? 'ol' : 'ul';
      return (
        <List className={`flex flex-col gap-1.5 pl-5 ${b.ordered ? 'list-decimal' : 'list-disc'}`}>
          {b.items?.map((item, i) => (
            <li key={i}>
              <div className="flex min-w-0 flex-col gap-2">
                <Blocks blocks={item} />
              </div>
            </li>
          ))}
        </List>
      );
    }
    case 'table':
      return <Rows rows={b.rows ?? []} />;
    case 'quote':
      return (
        <blockquote className="flex flex-col gap-2 border-l-2 border-line pl-4 text-muted">
          <Blocks blocks={b.blocks ?? []} />
        </blockquote>
      );
  }
}

// Rows is a table, whose first row has the names of the columns, if they have any.
function Rows({ rows: [head = [], ...rows] }: { rows: (Span[] | null)[][] }) {
  const named = head.some((cell) => plain(cell) !== '');
  return (
    // A scrolling region must take the focus, so that keys can scroll it.
    <div
      tabIndex={0}
      role="group"
      aria-label={named ? `Table: ${head.map(plain).filter(Boolean).join(', ')}` : 'Table'}
      className="overflow-x-auto">
      <table className="w-full text-left">
        {named && (
          <thead>
            <tr className="border-b border-line-strong">
              {head.map((cell, i) => (
                <td key={i} className="px-2 py-1.5 align-bottom font-semibold">
                  <Spans spans={cell} />
                </td>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {rows.map((row, i) => (
            <tr key={i} className="border-b border-line">
              {row.map((cell, n) => (
                <td key={n} className="px-2 py-1.5 align-top">
                  <Spans spans={cell} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Spans({ spans }: { spans: Span[] | null | undefined }) {
  return (spans ?? []).map((s, i) => <Styled key={i} span={s} />);
}

function Styled({ span: s }: { span: Span }) {
  const text = s.code ? <code className="rounded bg-hover px-1 font-mono text-sm break-words">{s.text}</code> : s.text;
  if (s.page)
    return (
      <Link to="/help/$page" params={{ page: s.page }} hash={s.anchor} className="link underline underline-offset-2">
        {text}
      </Link>
    );
  if (s.url)
    return (
      <a href={s.url} target="_blank" rel="noopener noreferrer" className="link underline underline-offset-2">
        {text}
      </a>
    );
  if (s.strong) return <strong className="font-semibold">{text}</strong>;
  if (s.emphasis) return <em>{text}</em>;
  return text;
}

import { expect, test } from 'vitest';
import type { DocsPage } from '../api/docs';
import { excerpt, searchDocs, sections } from './docsearch';

const p = (text: string) => ({ kind: 'paragraph' as const, spans: [{ text }] });
const h = (text: string, anchor: string) => ({ kind: 'heading' as const, level: 2, anchor, spans: [{ text }] });
const pages: DocsPage[] = [
  { name: 'keys', title: 'Keys and limits', blocks: [p('A key is for callers.'), h('Rotation', 'rotation'), p('Both keys are valid.')] },
  {
    name: 'webhooks',
    title: 'Webhooks',
    blocks: [
      h('Rotating the secret', 'rotating'),
      { kind: 'code', language: 'sh', text: 'keygate webhooks rotate-secret\n' },
      {
        kind: 'table',
        rows: [
          [[{ text: 'Header' }], null],
          [[{ text: 'X-Service-Signature', code: true }], [{ text: 'over the body' }]],
        ],
      },
      { kind: 'list', items: [[p('ignore duplicates')]] },
    ],
  },
];
const all = sections(pages);
const found = (text: string) => searchDocs(all, text, 10).map((s) => `${s.page}#${s.anchor}`);

test('a section has the text of every kind of block, and is found by each', () => {
  expect(all.map((s) => s.anchor)).toEqual(['', 'rotation', '', 'rotating']);
  for (const word of ['rotate-secret', 'x-service-signature', 'OVER the body', 'duplicates'])
    expect(found(word)).toEqual(['webhooks#rotating']);
  expect(found('valid callers')).toEqual([]);
  expect(found('  ')).toEqual([]);
});

test('sections whose heading has the words come first', () => {
  expect(found('keys')).toEqual(['keys#', 'keys#rotation']);
  expect(found('rotat')).toEqual(['keys#rotation', 'webhooks#rotating']);
  expect(found('keys rotation')).toEqual(['keys#rotation']);
  expect(searchDocs(all, 'k', 1)).toHaveLength(1);
});

test('an excerpt is around what was found', () => {
  const section = { ...all[0]!, text: `${'a '.repeat(100)}needle${' b'.repeat(100)}` };
  expect(excerpt(section, 'needle', 10)).toBe('…a a a a a needle b b…');
  expect(excerpt({ ...section, text: 'short' }, 'keys')).toBe('short');
});

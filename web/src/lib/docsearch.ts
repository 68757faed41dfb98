import type { Block, DocsPage, Span } from '../api/docs';

// Section is a part of a page of the documentation, from one heading to the next.
export interface Section {
  page: string;
  title: string; // of the page
  heading: string; // "" before the first heading
  anchor: string; // "" for the beginning of the page
  text: string;
}

export const plain = (spans: Span[] | null | undefined) => (spans ?? []).map((s) => s.text).join('');

// textOf is the text of a block with everything in it.
function textOf(b: Block): string {
  return [
    b.text ?? '',
    plain(b.spans),
    ...(b.items ?? []).map((item) => item.map(textOf).join(' ')),
    ...(b.rows ?? []).map((row) => row.map(plain).join(' ')),
    ...(b.blocks ?? []).map(textOf),
  ]
    .filter(Boolean)
    .join(' ');
}

// sections cuts pages into their sections.
export function sections(pages: DocsPage[]): Section[] {
  return pages.flatMap((p) => {
    const all: Section[] = [{ page: p.name, title: p.title, heading: '', anchor: '', text: '' }];
    for (const b of p.blocks) {
      if (b.kind === 'heading') all.push({ page: p.name, title: p.title, heading: plain(b.spans), anchor: b.anchor ?? '', text: '' });
      else all.at(-1)!.text += `${textOf(b)} `;
    }
    return all;
  });
}

// searchDocs returns the sections that have every word of text, those first whose title or heading has them.
export function searchDocs(all: Section[], text: string, most: number): Section[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const has = (where: string) => {
    const lower = where.toLowerCase();
    return words.every((w) => lower.includes(w));
  };
  const rank = (s: Section) => {
    if (has(s.heading || s.title)) return 0;
    if (has(`${s.title} ${s.heading}`)) return 1;
    return has(`${s.title} ${s.heading} ${s.text}`) ? 2 : 3;
  };
  return all
    .map((section) => ({ section, rank: rank(section) }))
    .filter((r) => r.rank < 3)
    .toSorted((a, b) => a.rank - b.rank)
    .slice(0, most)
    .map((r) => r.section);
}

// excerpt is what is around the first of the words that a section has.
export function excerpt(section: Section, text: string, around = 80): string {
  const lower = section.text.toLowerCase();
  const at = text
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .map((w) => lower.indexOf(w))
    .find((i) => i >= 0);
  const from = Math.max(0, (at ?? 0) - around);
  const to = (at ?? 0) + around;
  return `${from > 0 ? '…' : ''}${section.text.slice(from, to).trim()}${to < section.text.length ? '…' : ''}`;
}

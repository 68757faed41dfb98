import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { useDocs } from '../../api/docs';
import { excerpt, searchDocs, sections } from '../../lib/docsearch';
import { useUrl } from '../../lib/url';
import { Empty, Failure, Page, Panel, Skeleton } from '../../ui/basic';
import { FilterBar } from '../../ui/filter';

const most = 30;

// Docs has the pages of the documentation, or the sections that a search finds.
export default function Docs() {
  const [url] = useUrl<'q'>();
  const docs = useDocs();
  const all = useMemo(() => sections(docs.data ?? []), [docs.data]);
  const text = (url.q ?? '').trim();
  const found = text ? searchDocs(all, text, most) : [];
  return (
    <Page title="Help">
      <div className="flex">
        <FilterBar placeholder="Search in the documentation" />
      </div>
      {docs.error && <Failure error={docs.error} retry={() => void docs.refetch()} />}
      {docs.isPending && <Skeleton className="h-96 w-full" />}
      {docs.data && text === '' && (
        <Panel title="Documentation of this version" flush>
          <ul className="grid sm:grid-cols-2 lg:grid-cols-3">
            {docs.data.map((p) => (
              <li key={p.name}>
                <Link to="/help/$page" params={{ page: p.name }} className="block px-4 py-2 hover:bg-hover">
                  {p.title}
                </Link>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {docs.data && text !== '' && (
        <Panel title={found.length === most ? `The first ${most} sections` : `Sections: ${found.length}`} flush>
          <ul className="divide-y divide-line">
            {found.map((s) => (
              <li key={`${s.page}#${s.anchor}`}>
                <Link to="/help/$page" params={{ page: s.page }} hash={s.anchor} className="block px-4 py-2 hover:bg-hover">
                  <span className="font-medium">{s.heading ? `${s.title}: ${s.heading}` : s.title}</span>
                  <span className="block text-sm break-words text-muted">{excerpt(s, text)}</span>
                </Link>
              </li>
            ))}
          </ul>
          {found.length === 0 && (
            <Empty icon="search" title="Nothing found">
              Every word of the search must be in one section.
            </Empty>
          )}
        </Panel>
      )}
    </Page>
  );
}

import { Link, useParams, useRouterState } from '@tanstack/react-router';
import { useEffect } from 'react';
import { useDocs } from '../../api/docs';
import { plain } from '../../lib/docsearch';
import { buttonClass, Failure, Page, Skeleton } from '../../ui/basic';
import { Missing } from '../../ui/missing';
import { Blocks } from './blocks';

// Document is one page of the documentation.
export default function Document() {
  const { page: name } = useParams({ from: '/help/$page' });
  const hash = useRouterState({ select: (s) => s.location.hash });
  const docs = useDocs();
  const page = docs.data?.find((p) => p.name === name);
  // The heading of the address is there only after the documentation was read.
  useEffect(() => {
    if (page && hash) document.getElementById(hash)?.scrollIntoView();
  }, [page, hash]);
  if (docs.data && !page) return <Missing />;
  const parts = page?.blocks.filter((b) => b.kind === 'heading' && b.level === 2) ?? [];
  return (
    <Page
      title={page?.title ?? <Skeleton className="h-6 w-60" />}
      actions={
        <Link to="/help" className={buttonClass('plain')}>
          All pages
        </Link>
      }>
      {docs.error && <Failure error={docs.error} retry={() => void docs.refetch()} />}
      {docs.isPending && <Skeleton className="h-96 w-full" />}
      {page && (
        <article className="flex max-w-4xl min-w-0 flex-col gap-4 leading-relaxed">
          {parts.length > 2 && (
            <nav aria-label="On this page">
              <ul className="flex flex-wrap gap-x-4 gap-y-1">
                {parts.map((b) => (
                  <li key={b.anchor}>
                    <Link to="/help/$page" params={{ page: name }} hash={b.anchor} className="link">
                      {plain(b.spans)}
                    </Link>
                  </li>
                ))}
              </ul>
            </nav>
          )}
          <Blocks blocks={page.blocks} />
        </article>
      )}
    </Page>
  );
}

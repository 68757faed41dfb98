import { useQuery } from '@tanstack/react-query';
import { ApiError, base } from './client';

// The documentation of this build, as package manual of the server has it.
export interface Span {
  text: string;
  code?: boolean;
  strong?: boolean;
  emphasis?: boolean;
  page?: string; // a link to another page
  anchor?: string; // a heading of it
  url?: string; // a link with https
}

export interface Block {
  kind: 'heading' | 'paragraph' | 'code' | 'list' | 'table' | 'quote';
  level?: number;
  anchor?: string;
  language?: string;
  text?: string;
  spans?: Span[];
  ordered?: boolean;
  items?: Block[][];
  rows?: (Span[] | null)[][];
  blocks?: Block[];
}

export interface DocsPage {
  name: string;
  title: string;
  blocks: Block[];
}

// useDocs reads the documentation, which does not change while the page is open.
export function useDocs(enabled = true) {
  return useQuery<DocsPage[], ApiError>({ queryKey: ['docs.json'], queryFn: ({ signal }) => read(signal), enabled, staleTime: Infinity });
}

async function read(signal: AbortSignal): Promise<DocsPage[]> {
  let response: Response;
  try {
    response = await fetch(`${base}docs.json`, { signal, credentials: 'same-origin', redirect: 'error' });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError(0, 'unreachable', 'Keygate does not answer.');
  }
  if (!response.ok) throw new ApiError(response.status, 'unexpected', `The server answered ${response.status} for its documentation.`);
  return ((await response.json()) as { pages: DocsPage[] }).pages;
}

import type { splitOf } from '../lib/split';
import { wordsOf } from '../lib/split';

// SplitWords says who gets which side of a split. upstream is that of all other requests.
export function SplitWords({ split, upstream }: { split: ReturnType<typeof splitOf>; upstream: string }) {
  if (split.length === 0) return null;
  return (
    <ol className="mt-2 flex list-decimal flex-col gap-1 pl-5 text-sm">
      {wordsOf(split, upstream).map((words) => (
        <li key={words} className="break-words">
          {words}
        </li>
      ))}
    </ol>
  );
}

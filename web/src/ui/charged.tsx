import { metersOf, unitsWords } from '../lib/cost';
import type { Row } from '../lib/traffic';

// Charged says what requests were charged by the costs of their routes, by meter; nothing if there are no costs.
export function Charged({ rows }: { rows: Row[] | undefined }) {
  const meters = metersOf(rows ?? []);
  if (meters.length === 0) return null;
  return (
    <p className="text-muted">
      Charged: <b className="font-medium text-text">{meters.map(([meter, units]) => unitsWords(meter, units)).join(', ')}</b>
    </p>
  );
}

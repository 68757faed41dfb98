import { tellApart } from '../lib/names';
import { useList } from './hooks';
import { markedGateways } from './names';
import { useRefusal } from './session';

// useGateways returns the newest 100 gateways, for names and choices, and whether there are more.
export function useGateways() {
  const refused = useRefusal('read', 'gateways');
  const query = useList('/v1/gateways', { query: { limit: 100 } }, { enabled: !refused, staleTime: 30_000 });
  const gateways = query.data?.data.data ?? [];
  return {
    gateways,
    loaded: Boolean(query.data),
    loading: query.isLoading,
    more: Boolean(query.data?.data.next_cursor),
    nameOf: tellApart(markedGateways(gateways)),
  };
}

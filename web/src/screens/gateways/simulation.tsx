import { Link } from '@tanstack/react-router';
import { useEffect, useState } from 'react';
import { api, ApiError, type Schemas } from '../../api/client';
import { useNames } from '../../api/names';
import { useRefusal } from '../../api/session';
import { count, plural } from '../../lib/format';
import { Failure, Time } from '../../ui/basic';

const listed = 5; // keys

// useSimulation asks what limits would have refused in the last 24 hours; body is that of the call, null for none.
export function useSimulation(gatewayId: string, body: Record<string, unknown> | null) {
  const [result, setResult] = useState<Schemas['Simulation'] | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const text = JSON.stringify(body);
  useEffect(() => {
    setResult(null);
    setError(null);
    if (text === 'null') return;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const call = { path: { gateway_id: gatewayId }, body: JSON.parse(text) as unknown, signal: stop.signal };
      api.post('/v1/gateways/{gateway_id}/limits/simulate', call).then(
        (a) => setResult(a.data),
        (e: unknown) => {
          if (e instanceof ApiError) setError(e);
        },
      );
    }, 400);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [text, gatewayId]);
  return { result, error };
}

// Simulation says what a limit would have refused in the last 24 hours (contract, section 7).
export function Simulation({
  gatewayId,
  of,
  rate,
}: {
  gatewayId: string;
  of: { route_id?: string; key_id?: string }; // whose limit it is; neither for that of the gateway
  rate: unknown; // the limit as its record has it; null for none
}) {
  const perAddress = typeof rate === 'object' && rate !== null && 'per' in rate && rate.per === 'address';
  const refused = useRefusal('write', `gateways/${gatewayId}/limits`);
  const { result, error } = useSimulation(gatewayId, rate && !refused && !perAddress ? { ...of, rate_limit: rate } : null);
  const { nameOf } = useNames((result?.keys ?? []).slice(0, listed).map((k) => ({ id: k.key_id })));
  if (!rate) return <p className="min-h-5 text-muted">Change the limit to see what it would have refused in the last 24 hours.</p>;
  if (perAddress)
    return (
      <p className="min-h-5 text-muted">
        What a limit of each address would have refused is not known: the counts that are kept have no addresses.
      </p>
    );
  if (refused) return <p className="min-h-5 text-muted">{refused}</p>;
  if (error)
    return error.status === 422 ? (
      <p className="min-h-5 text-muted">Enter a limit such as 100/s to see what it would have refused.</p>
    ) : (
      <Failure error={error} />
    );
  return (
    <div role="status" className="flex min-h-5 flex-col gap-1">
      {!result ? (
        <p className="text-muted">Replaying the last 24 hours…</p>
      ) : (
        <>
          <p>
            Last 24 h: <b>{count(result.refused)}</b> of {plural(result.requests, 'request')} would have been refused
            {result.keys.length > 0 && `, ${plural(result.keys.length, 'key')}`}.
          </p>
          {result.incomplete_reason && <p className="text-sm text-warn">Incomplete: {result.incomplete_reason}.</p>}
          {result.keys.slice(0, listed).map((k) => (
            <p key={k.key_id ?? ''} className="text-sm text-muted">
              {k.key_id ? (
                <Link to="/keys/$keyId" params={{ keyId: k.key_id }} className="link">
                  <bdi>{nameOf(k.key_id)}</bdi>
                </Link>
              ) : (
                'without a key'
              )}
              : {count(k.refused)} refused, first <Time at={k.first_at} />
            </p>
          ))}
        </>
      )}
    </div>
  );
}
